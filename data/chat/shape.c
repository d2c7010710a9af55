// The shapes of examples: see shape.h.
#include "data/chat/shape.h"

const char *const member_names[NMEMBER] = {
    [MEMBER_TEXT] = "text",
    [MEMBER_PROMPT] = "prompt",
    [MEMBER_COMPLETION] = "completion",
    [MEMBER_MESSAGES] = "messages",
    [MEMBER_CONVERSATIONS] = "conversations",
    [MEMBER_INSTRUCTION] = "instruction",
    [MEMBER_INPUT] = "input",
    [MEMBER_OUTPUT] = "output",
    [MEMBER_CONTEXT] = "context",
    [MEMBER_QUESTION] = "question",
    [MEMBER_ANSWER] = "answer",
    [MEMBER_RESPONSE] = "response",
    [MEMBER_SYSTEM] = "system",
};

#define HAS(member) (1u << MEMBER_##member)

// A line with the members of several shapes is refused, except a "text" beside an instruction,
// which holds the rendered prompt once more; so "text" is the last row.
static const struct Shape shapes[] = {
    {"messages", LINE_MESSAGES, HAS(MESSAGES), HAS(COMPLETION), MEMBER_NONE, MEMBER_NONE,
     MEMBER_NONE},
    {"conversations (ShareGPT)", LINE_MESSAGES, HAS(CONVERSATIONS), HAS(COMPLETION), MEMBER_NONE,
     MEMBER_NONE, MEMBER_NONE},
    {"instruction and output (Alpaca)", LINE_TASK, HAS(INSTRUCTION) | HAS(OUTPUT),
     HAS(COMPLETION) | HAS(CONTEXT), MEMBER_INSTRUCTION, MEMBER_OUTPUT, MEMBER_INPUT},
    {"instruction and response (Dolly)", LINE_TASK, HAS(INSTRUCTION) | HAS(RESPONSE),
     HAS(COMPLETION) | HAS(INPUT), MEMBER_INSTRUCTION, MEMBER_RESPONSE, MEMBER_CONTEXT},
    {"prompt and completion", LINE_PROMPT, HAS(PROMPT) | HAS(COMPLETION), 0, MEMBER_PROMPT,
     MEMBER_COMPLETION, MEMBER_NONE},
    {"prompt and response", LINE_TASK, HAS(PROMPT) | HAS(RESPONSE),
     HAS(INSTRUCTION) | HAS(INPUT) | HAS(CONTEXT), MEMBER_PROMPT, MEMBER_RESPONSE, MEMBER_NONE},
    {"question and answer", LINE_TASK, HAS(QUESTION) | HAS(ANSWER),
     HAS(PROMPT) | HAS(COMPLETION) | HAS(INSTRUCTION) | HAS(INPUT) | HAS(CONTEXT), MEMBER_QUESTION,
     MEMBER_ANSWER, MEMBER_NONE},
    {"question and response (OpenOrca)", LINE_TASK, HAS(QUESTION) | HAS(RESPONSE),
     HAS(PROMPT) | HAS(COMPLETION) | HAS(INSTRUCTION) | HAS(INPUT) | HAS(CONTEXT), MEMBER_QUESTION,
     MEMBER_RESPONSE, MEMBER_NONE},
    {"text", LINE_TEXT, HAS(TEXT), HAS(PROMPT) | HAS(COMPLETION), MEMBER_NONE, MEMBER_TEXT,
     MEMBER_NONE},
};

const struct Shape shape_prompt_of_messages = {.name = "prompt and completion of messages",
                                               .kind = LINE_MESSAGES};

enum Member member_named(const struct JsonSlice *name) {
    for (int m = MEMBER_NONE + 1; m < NMEMBER; m++)
        if (slice_is(name, member_names[m]))
            return (enum Member)m;
    return slice_is(name, "system_prompt") ? MEMBER_SYSTEM : MEMBER_NONE;
}

const struct Shape *shape_find(unsigned has, bool *ambiguous) {
    const struct Shape *found = NULL;
    *ambiguous = false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct Shape *s = &shapes[i];
        bool has_instruction = found && found->prompt == MEMBER_INSTRUCTION;
        if ((has & s->needs) != s->needs || (has_instruction && s->kind == LINE_TEXT))
            continue;
        *ambiguous = *ambiguous || found || (has & s->clashes);
        found = found ? found : s;
    }
    return *ambiguous ? NULL : found;
}

enum Refusal member_refusal(const struct JsonSlice *name) {
    static const struct {
        const char *name;
        enum Refusal refusal;
    } refused[] = {{"tools", REFUSE_FILLED},       {"functions", REFUSE_FILLED},
                   {"history", REFUSE_FILLED},     {"images", REFUSE_FILLED},
                   {"label", REFUSE_FALSE},        {"chosen", REFUSE_PREFERENCE},
                   {"rejected", REFUSE_PREFERENCE}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (slice_is(name, refused[i].name))
            return refused[i].refusal;
    return REFUSE_NEVER;
}
