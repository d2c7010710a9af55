// --chat: see ask.h.
#include "data/chat/ask.h"
#include "data/chat/template.h"
#include "data/text/text.h"

#include <errno.h>
#include <string.h>

static struct Message message(enum Role role, const char *text) {
    return (struct Message){role, text, strlen(text), false};
}

static int render(const struct Template *template, const struct ChatAsk *ask,
                  struct Masked *rendered, struct Error *e) {
    struct Message messages[2];
    struct Error why;
    size_t n = 0;
    if (ask->system)
        messages[n++] = message(ROLE_SYSTEM, ask->system);
    messages[n++] = message(ROLE_USER, ask->question);
    for (size_t i = 0; i < n; i++)
        if (text_find_invalid(messages[i].text, messages[i].bytes) < messages[i].bytes)
            return error_set(e, -EINVAL, E_UTF8, "--%s: it is not UTF-8; convert it by iconv",
                             messages[i].role == ROLE_USER ? "chat" : "system");
    int err = template_render(template, messages, n, true, rendered, &why);
    return err ? error_set(e, err, why.id, "--chat: %s", why.text) : 0;
}

int chat_ask(const struct Tokenizer *t, const struct ChatAsk *ask, struct Ids *prompt,
             struct Ids *stops, struct Error *e) {
    struct Template *template;
    struct Masked rendered = {0};
    int32_t ends[TEMPLATE_STOPS];
    int err = template_open(&template, t, ask->template, e);
    if (err)
        return err;
    err = render(template, ask, &rendered, e);
    for (size_t i = 0; i < rendered.ids.count && !err; i++)
        ids_append(prompt, rendered.ids.data[i]);
    for (size_t i = 0, n = template_stops(template, ends); i < n; i++)
        ids_append(stops, ends[i]);
    masked_free(&rendered);
    template_close(template);
    return err;
}
