// The pre-tokenizers of a tokenizer.json, which cut a text into the words in which pairs merge.
//
// Each step takes a stretch of text and passes parts of it to the next step, or rewrites it (marks
// in place of spaces, the alphabet of ByteLevel). The parts of the last step are words. The walk is
// depth-first, so that no list of parts is kept.
//
// A stretch may be the front of a longer text: `open`, with some of the following text after `cut`.
// Then only words before the cut are taken, and only if the cut lies between two words whatever
// follows the stretch: no match crosses it, and no match before it depends on text after the
// stretch. Else the steps return -EAGAIN, and the text must be cut elsewhere. So threads can share
// a text, whatever expression splits it.
//
// Called by bpe.c; made by read_steps.c. Files: steps.c the walk and the steps that rewrite,
// steps_split.c the steps that cut. Next: split.h, regex.h.
#ifndef DATA_BPE_STEPS_H
#define DATA_BPE_STEPS_H
#include "data/bpe/pattern.h"
#include "data/bpe/regex.h"
#include "data/bpe/split.h"

enum { STEPS_MAX = 12 };

enum StepKind {
    STEP_SCAN,    // splits by a scanner of split.h
    STEP_CLASS,   // splits at characters whose kind has a flag of `mask`
    STEP_STRING,  // splits at a text
    STEP_REGEX,   // splits at matches of an expression
    STEP_WORDS,   // Whitespace: takes \w+ and [^\w\s]+, nothing else
    STEP_RUNS,    // splits before each mark that follows no mark
    STEP_PREFIX,  // prepends a space, if there is none; it and those below rewrite, all above cut
    STEP_MARK,    // Metaspace: writes marks in place of spaces, and prepends one
    STEP_LETTERS, // writes ByteLevel's letters in place of bytes
};

// The "behavior" of a split, by tokenizers' names: where a match of the pattern goes.
enum Behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum Prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct Step {
    enum StepKind kind;
    enum SplitKind scan;
    uint8_t mask;
    enum Behavior behavior;
    bool invert;
    enum Prepend prepend;
    char *text;   // STRING: the text to find; REGEX: its source; MARK, RUNS: the mark
    size_t bytes; // of it
    struct Pattern pattern;
    struct Regex *regex;
};

void step_close(struct Step *s);

struct Stretch {
    const uint8_t *text;
    size_t n, cut;   // words before `cut` are taken; SIZE_MAX: all of them
    size_t at;       // its offset in the text to encode, for errors; not exact if it is rewritten
    bool begins;     // the text begins with it, and no token stands before that
    bool middle;     // the text was cut before it, so that nothing may be prepended
    bool open;       // the text goes on after its n bytes
    bool in_letters; // STEP_LETTERS has written it
};

// Returns the bytes from `begin` to `end` of a stretch. open: the text goes on after them.
static inline struct Stretch stretch_part(const struct Stretch *s, size_t begin, size_t end,
                                          bool open) {
    bool has_cut = s->cut < end || (open && s->cut == end);
    return (struct Stretch){.text = s->text + begin,
                            .n = end - begin,
                            .cut = has_cut ? s->cut - begin : SIZE_MAX,
                            .at = s->in_letters ? s->at : s->at + begin,
                            .begins = s->begins && !begin,
                            .middle = s->middle && !begin,
                            .open = open,
                            .in_letters = s->in_letters};
}

// One thread's buffers, one for each step.
struct StepsWork {
    struct Bytes room[STEPS_MAX + 1];
    struct RegexWork *regex;
};
void steps_work_close(struct StepsWork *w);

typedef void StepWord(void *context, const uint8_t *word, size_t n);

struct Steps {
    struct Step step[STEPS_MAX];
    size_t count;
};

struct StepsRun {
    const struct Steps *steps;
    const struct Unicode *unicode;
    struct StepsWork *work;
    StepWord *take;
    void *context;
    struct Error *e;
};

// Passes the words of the stretch to `take`, by the steps from k on. Errors: -EAGAIN: see above;
// -EINVAL: an expression takes too long, with the byte of the text.
int steps_run(const struct StepsRun *r, size_t k, struct Stretch s);

// ---- between the files ----

// Runs step k, which cuts, and those after it.
int steps_split(const struct StepsRun *r, size_t k, struct Stretch s);

// ByteLevel's alphabet: return the letter of a byte, and the byte of a letter or -1.
uint32_t byte_to_letter(uint8_t byte);
int letter_to_byte(uint32_t letter);

#endif
