// The pre-tokenizers of a tokenizer.json: what cuts a text into the words that pairs are merged in.
//
// Each step takes a stretch of text and hands parts of it on to the next, or writes it anew (marks
// in place of spaces, the alphabet of ByteLevel); what the last one hands on is a word. Steps are
// walked in depth, so that no list of parts is kept.
//
// A stretch may be the front of a longer text: `open`, with some of what follows behind `cut`. Then
// only words before the cut are taken, and only if the cut is between two words whatever comes
// behind the stretch: if no match lies across it, and none before it has asked for more than there
// is. Else the steps answer -EAGAIN, and the text must be cut elsewhere. That is how threads share
// a text that any expression splits.
//
// Called by bpe.c; made by read_steps.c. Files: steps.c the walk and what writes anew,
// steps_split.c what cuts. Next: split.h, regex.h.
#ifndef DATA_BPE_STEPS_H
#define DATA_BPE_STEPS_H
#include "data/bpe/pattern.h"
#include "data/bpe/regex.h"
#include "data/bpe/split.h"

enum { STEPS_MAX = 12 };

enum StepKind {
    STEP_SCAN,    // by a scanner of split.h
    STEP_CLASS,   // characters whose kind has a flag of `mask`
    STEP_STRING,  // a text
    STEP_REGEX,   // an expression
    STEP_WORDS,   // Whitespace: \w+ and [^\w\s]+, nothing else
    STEP_RUNS,    // in front of each mark that follows none
    STEP_PREFIX,  // writes a space in front, if there is none
    STEP_MARK,    // Metaspace: writes marks in place of spaces, and in front
    STEP_LETTERS, // writes ByteLevel's letters in place of bytes
};

// What becomes of the parts that a pattern matches, and of those between: as tokenizers names it.
enum Behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum Prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct Step {
    enum StepKind kind;
    enum SplitKind scan;
    uint8_t mask;
    enum Behavior behavior;
    bool invert;
    enum Prepend prepend;
    char *text;   // STRING: what is found; REGEX: as it was written; MARK, RUNS: the mark
    size_t bytes; // of it
    struct Pattern pattern;
    struct Regex *regex;
};

void step_close(struct Step *s);

struct Stretch {
    const uint8_t *text;
    size_t n, cut; // words before `cut` are taken; SIZE_MAX: all of them
    size_t at;     // its offset in the text to encode, for error lines; not exact if written anew
    bool begins;   // the text begins with it, and no token stands before that
    bool middle;   // the text was cut before it, so that nothing may be prepended
    bool open;     // the text goes on after its n bytes
    bool letters;  // STEP_LETTERS has written it
};

// Room of one thread, for each step.
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

// Hands the words of the stretch to `take`. Errors: -EAGAIN: see above; -EINVAL: an expression
// takes too long, with its byte.
int steps_run(const struct StepsRun *r, struct Stretch s);

// ---- between the files ----

// From step k on.
int steps_run_from(const struct StepsRun *r, size_t k, struct Stretch s);
int steps_split(const struct StepsRun *r, size_t k, struct Stretch s);

// ByteLevel's alphabet: the letter of a byte, and the byte of a letter, -1 where it is none.
uint32_t letter_of(uint8_t byte);
int letter_byte(uint32_t letter);

#endif
