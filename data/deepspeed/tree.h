// A JSON text as a tree that knows its lines, for files that people write by hand.
//
// cJSON forgets where a value stood, finds the first of two equal keys and passes over what follows
// a value. Here the grammar is RFC 8259's and no more, so that a file which is not JSON is refused
// where it goes wrong: a comma before a bracket, a comment, a key that is there twice, a number
// that no double holds. Used by deepspeed.h.
#ifndef DATA_DEEPSPEED_TREE_H
#define DATA_DEEPSPEED_TREE_H
#include "kernels/base.h"

enum NodeKind { NODE_NULL, NODE_BOOL, NODE_NUMBER, NODE_TEXT, NODE_LIST, NODE_OBJECT };

struct Node {
    enum NodeKind kind;
    size_t line;               // where it begins, from 1
    char *key;                 // in an object; owned
    char *text;                // of a text; of a number as it is written; owned
    double number;             // and its value
    bool on;                   // of a bool
    struct Node *first, *next; // members; the next one of the same object or list
};

// The object that `n` bytes are, or NULL and the line "PATH: line N: ..." (-EINVAL). tree_free it.
struct Node *tree_read(const char *text, size_t n, const char *path, struct Error *e);
void tree_free(struct Node *node); // NULL: nothing

// The member of an object; NULL: it has none of this name.
struct Node *tree_member(const struct Node *object, const char *key);

// The value on the path "a.b.c" from an object; NULL: there is none.
struct Node *tree_find(const struct Node *root, const char *path);

// Makes a line of the text: what is no letter of one is "?". Returns it.
char *tree_line(char *text);

// The value as it could be written, of a list or an object at most some letters. free() it.
char *tree_print(const struct Node *node);

#endif
