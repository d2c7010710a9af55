// The answers to prompts, in a file of JSONL (--answers): line i is the object of prompt i with two
// members added,
//
//     "answer":"...","finish_reason":"stop"}      "length": it was cut before it ended
//
// Answers may come in any order. A line is written, by one call, once all lines before it are: so
// the file of a run that was killed holds the answers to the first prompts, and at most half a line
// behind them, and the next run goes on from there. prompts.h reads the prompts.
#ifndef DATA_CHAT_ANSWERS_H
#define DATA_CHAT_ANSWERS_H
#include "data/chat/prompts.h"

struct Answers;

// Opens the file, or makes it, and locks it. Half a line at its end is cut off, once all lines are
// known to answer these prompts. `p` must outlive the answers. Errors, which change nothing:
// -errno; -EINVAL for what is no regular file (a link, a pipe), "-" and names of packed files;
// -EBUSY if another process writes there; -EEXIST for lines that do not answer these prompts, in
// their order.
int answers_open(struct Answers **out, const struct Prompts *p, const char *path, struct Error *e);

// Syncs the file to the disk, and frees everything also after an error; answers that wait for
// others are lost. NULL is allowed. Errors: -errno.
int answers_close(struct Answers *a, struct Error *e);

// Returns how many prompts have a line: the first ones.
size_t answers_done(const struct Answers *a);

// Adds the answer to prompt `prompt`, from 0. Bytes that are not UTF-8 become U+FFFD. cut: no token
// ended it. Errors: -errno; the file has no half line then, and the next call tries again.
int answers_put(struct Answers *a, size_t prompt, const char *text, size_t bytes, bool cut,
                struct Error *e);

#endif
