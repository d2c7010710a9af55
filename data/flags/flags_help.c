// Prints --help: topics in the order of their first flag, text wrapped at 100 columns.
//
// A topic is the group of a row, in small letters. Without a topic, only names are printed: the
// whole text is longer than a screen.
#include "data/flags/flags.h"
#include "kernels/show.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HELP_COLUMN = 28 };

// True for a switch that has no more words than on and off.
static bool is_plain_switch(const struct Flag *flag) {
    return flag_is_switch(flag) && !(flag->words && flag->words[2]);
}

// Returns "--name N", "--recompute none|gelu", "--[no-]overlap".
static char *format_usage(const struct Flag *flag) {
    struct FlagRange range = flag_range(flag);
    bool on = is_plain_switch(flag) && flag->value_default && !strcmp(flag->value_default, "true");
    if (is_plain_switch(flag))
        return base_format("--%s%s", on ? "[no-]" : "", flag->name);
    if (flag->type == FLAG_CHOICE) {
        char *words = flag_argument(flag);
        char *usage = base_format("--%s %s", flag->name, words);
        free(words);
        return usage;
    }
    return base_format("--%s %.*s", flag->name, range.name ? range.name_length : 5,
                       range.name ? range.name : "VALUE");
}

static char *format_help(const struct Flag *flag) {
    struct FlagRange range = flag_range(flag);
    bool bounded = range.name && (size_t)range.name_length < strlen(flag->argument);
    const char *preset = flag->value_default ? flag->value_default : "";
    if (is_plain_switch(flag))
        preset = strcmp(preset, "true") ? "" : "on";
    bool has_default = *preset;
    if (!bounded && !has_default)
        return base_format("%s", flag->help);
    if (!strcmp(preset, "\n")) // it would break the help's own lines
        preset = "\\n";
    return base_format("%s (%s%s%s%s)", flag->help, bounded ? flag->argument : "",
                       bounded && has_default ? ", " : "", has_default ? "default " : "", preset);
}

static void print_flag(const struct Flag *flag, FILE *out) {
    char *usage = format_usage(flag), *help = format_help(flag);
    int at = fprintf(out, "  %s", usage);
    if (at + 2 > HELP_COLUMN)
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    else
        fprintf(out, "%*s", HELP_COLUMN - at, "");
    show_words(out, help, HELP_COLUMN);
    free(usage);
    free(help);
}

static bool is_first_of_group(const struct Flag *table, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (!strcmp(table[j].group, table[i].group))
            return false;
    return true;
}

// Prints the names of a topic's flags: "  memory                    --recompute --device-mem".
static void print_names(const struct Flags *f, size_t first, FILE *out) {
    char *topic = flags_lower_case(f->table[first].group), *names = base_format("%s", "");
    for (size_t i = first; i < f->n; i++)
        if (!strcmp(f->table[i].group, f->table[first].group))
            base_append(&names, " --%s", f->table[i].name);
    int at = fprintf(out, "  %s", topic);
    fprintf(out, "%*s", HELP_COLUMN - at, "");
    show_words(out, names, HELP_COLUMN);
    free(names);
    free(topic);
}

static void print_group(const struct Flags *f, size_t first, FILE *out) {
    fprintf(out, "%s\n", f->table[first].group);
    for (size_t i = first; i < f->n; i++)
        if (!strcmp(f->table[i].group, f->table[first].group))
            print_flag(&f->table[i], out);
}

static int refuse_topic(const struct Flags *f, const char *topic, struct Error *e) {
    char *all = base_format("%s", "");
    for (size_t i = 0; i < f->n; i++)
        if (is_first_of_group(f->table, i)) {
            char *name = flags_lower_case(f->table[i].group);
            base_append(&all, "%s, ", name);
            free(name);
        }
    error_set(e, -EINVAL, E_HELP_TOPIC,
              "--help %s: expected %sall, or a flag's name without its dashes", topic, all);
    free(all);
    return -EINVAL;
}

int flags_print_help(const struct Flags *f, const char *topic, FILE *out, struct Error *e) {
    bool names = !*topic, all = !strcmp(topic, "all"), any = false;
    const char *ours = flags_known_as(f, topic);
    size_t one = flags_find(f, ours ? ours : topic);
    for (size_t i = 0; i < f->n; i++) {
        bool wanted = names || all || !strcasecmp(f->table[i].group, topic);
        if (!wanted || !is_first_of_group(f->table, i))
            continue;
        if (any && !names)
            fputc('\n', out);
        any = true;
        (names ? print_names : print_group)(f, i, out);
    }
    if (!any && ours)
        fprintf(out, "--%s: zero.c calls it --%s\n", topic, ours);
    if (!any && !ours && one < f->n && strcmp(f->table[one].name, topic))
        fprintf(out, "--%s is called --%s now\n", topic, f->table[one].name);
    if (!any && one < f->n)
        print_flag(&f->table[one], out);
    return any || one < f->n ? 0 : refuse_topic(f, topic, e);
}
