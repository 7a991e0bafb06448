/* libkiln: Kiln's C interface. Made of ffi/capi/src/border; `KILN_BLESS=1 cargo test -p kiln-capi` makes it anew.
 *
 * A handle is a number in the place of a pointer: one that was given back is an error and not a crash. Functions block; each may
 * be called by any thread. They return KILN_OK or what went wrong, and kiln_last_error has the words. Texts are UTF-8, with
 * lengths; what a function gives ends with a 0 that its length does not count, and is freed with kiln_free. */

#ifndef KILN_H
#define KILN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 The interface's version. It changes where a program that was compiled before may not run any more.
 */
#define KILN_ABI_VERSION 1

/*
 Nothing went wrong.
 */
#define KILN_OK 0

/*
 A valid request failed while it ran.
 */
#define KILN_FAILED 1

/*
 An argument, a file or a request is wrong.
 */
#define KILN_INPUT 2

/*
 It does not fit this machine's memory, or there is no place for it now.
 */
#define KILN_REFUSED 3

/*
 A device is absent, unusable or lost.
 */
#define KILN_DEVICE 4

/*
 It was cancelled, or the caller's function asked for its end.
 */
#define KILN_INTERRUPTED 5

/*
 A loaded model. Several may be open at once.
 */
typedef struct kiln_engine kiln_engine;

/*
 Places where others reach an engine.
 */
typedef struct kiln_server kiln_server;

/*
 A thread of questions to an engine, and the tokens that it was brought to. All of an engine share its batch, and each may be
 used by any thread.
 */
typedef struct kiln_session kiln_session;

/*
 A UTF-8 text. `data` may be NULL where `length` is 0.
 */
typedef struct kiln_text {
    /*
     Its first byte.
     */
    const char *data;
    /*
     Its bytes.
     */
    size_t length;
} kiln_text;

/*
 What the thread's last call said. The texts are Kiln's, until the thread's next call of any function but
 kiln_last_error.
 */
typedef struct kiln_error {
    /*
     sizeof(struct kiln_error), set by the caller.
     */
    size_t size;
    /*
     KILN_OK, or what went wrong.
     */
    int32_t code;
    /*
     What went wrong.
     */
    struct kiln_text message;
    /*
     What to do about it.
     */
    struct kiln_text remedy;
} kiln_error;

/*
 Takes a line of the log: its level, 1 (error) to 5 (trace), and its text. Any thread may call it.
 */
typedef void (*kiln_log_function)(void *user, uint32_t level, struct kiln_text line);

/*
 Is told a load's stage (loading, tuning, first token, ready) and which share of the stage is done, from 0 to 1, by the thread
 that loads. Anything but 0 ends the load.
 */
typedef int (*kiln_progress_function)(void *user, struct kiln_text stage, double share);

/*
 How an engine is opened. Zero and empty are the defaults.
 */
typedef struct kiln_engine_options {
    /*
     sizeof(struct kiln_engine_options), set by the caller. Fields beyond it have their defaults.
     */
    size_t size;
    /*
     The model: a directory, a GGUF file, or the id of a model in the Hugging Face hub's cache. Empty: the built-in one.
     */
    struct kiln_text model;
    /*
     auto, vulkan, vulkan:N, cpu or reference.
     */
    struct kiln_text device;
    /*
     int8, int4 or bf16.
     */
    struct kiln_text weights;
    /*
     The system message of conversations that bring none.
     */
    struct kiln_text system;
    /*
     Where others may reach the engine by HTTP: ADDRESS:PORT or unix:PATH, several with commas between.
     */
    struct kiln_text listen;
    /*
     Longest sequence, in tokens.
     */
    uint32_t context;
    /*
     Replies at once.
     */
    uint32_t batch;
    /*
     Threads on the CPU.
     */
    uint32_t threads;
    /*
     Is told how the load goes. NULL: nobody is.
     */
    kiln_progress_function on_progress;
    /*
     What `on_progress` is called with.
     */
    void *user;
} kiln_engine_options;

/*
 How a session came to its tokens, of which each is one of the three.
 */
typedef struct kiln_synced {
    /*
     sizeof(struct kiln_synced), set by the caller.
     */
    size_t size;
    /*
     Tokens whose keys and values were there.
     */
    size_t reused;
    /*
     Tokens that were run behind what the session held before.
     */
    size_t extended;
    /*
     Tokens that were run in the place of what the session held before, or of what the cache had lost of it.
     */
    size_t rebuilt;
} kiln_synced;

/*
 Takes a piece of a reply's text. Anything but 0 ends the reply.
 */
typedef int (*kiln_text_function)(void *user, struct kiln_text text);

/*
 Where and to whom an engine is open. Zero and empty are the defaults.
 */
typedef struct kiln_serve_options {
    /*
     sizeof(struct kiln_serve_options), set by the caller. Fields beyond it have their defaults.
     */
    size_t size;
    /*
     ADDRESS:PORT or unix:PATH, several with commas between. Port 0 is any that is free. Empty: 127.0.0.1:8080.
     */
    struct kiln_text listen;
    /*
     A file of API keys, one on each line, of which a request needs one. Addresses that other machines reach need it.
     */
    struct kiln_text keys;
} kiln_serve_options;

/*
 What is planned. Zero and empty are the defaults.
 */
typedef struct kiln_plan_options {
    /*
     sizeof(struct kiln_plan_options), set by the caller. Fields beyond it have their defaults.
     */
    size_t size;
    /*
     The model, as kiln_engine_open takes it. Empty: the built-in one.
     */
    struct kiln_text model;
    /*
     A model by name (gemma3-27b), or its config.json, in the place of `model`.
     */
    struct kiln_text shape;
    /*
     The machine: this, 780m, 890m or 8060s; with GiB of carve-out as in 780m:4. Empty: this one.
     */
    struct kiln_text machine;
    /*
     The device of this machine, as kiln_engine_open takes it.
     */
    struct kiln_text device;
    /*
     int8, int4 or bf16.
     */
    struct kiln_text weights;
    /*
     A smaller model beside it that drafts: by name, as `model`, or demo.
     */
    struct kiln_text draft;
    /*
     Longest sequence, in tokens.
     */
    uint32_t context;
    /*
     Sequences at once.
     */
    uint32_t batch;
    /*
     Tokens that the cache has room for, of all sequences together.
     */
    uint32_t kv_tokens;
    /*
     GiB of RAM of a machine by name, its carve-out included.
     */
    uint32_t ram_gib;
    /*
     Anything but 0: every step of a pass is told too.
     */
    uint32_t with_schedule;
} kiln_plan_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 KILN_ABI_VERSION of the library that runs.
 */
uint32_t kiln_abi_version(void);

/*
 What this thread's last call said. Keeps it as it is.
 */
int32_t kiln_last_error(struct kiln_error *error);

/*
 Frees what a function gave. NULL is nothing to free.
 */
void kiln_free(void *given);

/*
 Hands what is logged up to `level`, 1 (error) to 5 (trace), to `function`. NULL ends that. Any thread may call it.
 */
int32_t kiln_set_log(uint32_t level, kiln_log_function function, void *user);

/*
 Loads a model, and returns once it answers. KILN_INTERRUPTED: `on_progress` ended it.
 */
int32_t kiln_engine_open(const struct kiln_engine_options *options,
                         struct kiln_engine **engine);

/*
 Gives an engine back. What is under way ends, and its memory is freed once the last call that uses it has returned.
 */
int32_t kiln_engine_close(struct kiln_engine *engine);

/*
 What answers: a JSON object of model, device, context, batch, seconds to the first token, and the places where others reach
 it.
 */
int32_t kiln_engine_info_json(struct kiln_engine *engine,
                              char **json,
                              size_t *length);

/*
 The tokens of a text. `begins`: whether the beginning-of-text token goes before them.
 */
int32_t kiln_tokenize(struct kiln_engine *engine, struct kiln_text text, bool begins, uint32_t **tokens, size_t *count);

/*
 The text of tokens.
 */
int32_t kiln_detokenize(struct kiln_engine *engine, const uint32_t *tokens, size_t count, char **text, size_t *length);

/*
 The text that the model's chat template makes of messages: a JSON array of objects with role and content. `opens`: whether
 the model's turn is opened behind them.
 */
int32_t kiln_render_chat(struct kiln_engine *engine,
                         struct kiln_text messages,
                         bool opens,
                         char **text,
                         size_t *length);

/*
 A session of an engine.
 */
int32_t kiln_session_new(struct kiln_engine *engine, struct kiln_session **session);

/*
 Gives a session back. A call that uses it ends first, as if it were cancelled.
 */
int32_t kiln_session_free(struct kiln_session *session);

/*
 Another session of the same engine with the same tokens. Each goes on by itself; what the cache holds, they share.
 */
int32_t kiln_session_clone(struct kiln_session *session, struct kiln_session **clone);

/*
 Brings a session to `tokens`: the engine's cache then holds their keys and values, and a prompt that begins with them goes on
 from there. What is there already is kept, and the rest is run. `synced` says how many tokens are which; it may be NULL. The
 cache keeps a session as it keeps conversations: what others need of its room is run again when it is asked for. Replies of
 the session do not change its tokens.
 */
int32_t kiln_session_sync(struct kiln_session *session,
                          const uint32_t *tokens,
                          size_t count,
                          struct kiln_synced *synced);

/*
 Writes a session's tokens with their keys and values to a file, all of it or nothing. A file that is no session's stays as it
 is. The file holds the conversation, and this user alone may read it.
 */
int32_t kiln_session_save(struct kiln_session *session,
                          struct kiln_text path);

/*
 Brings a session to the tokens of a file that kiln_session_save wrote, of the same model on the same device, in this process
 or another. What goes on behind them is what it would have been there. `tokens` gets them, and `count` how many they are;
 both may be NULL.
 */
int32_t kiln_session_load(struct kiln_session *session,
                          struct kiln_text path,
                          uint32_t **tokens,
                          size_t *count);

/*
 Ends what the session's calls do, from any thread. They return KILN_INTERRUPTED. The next call runs again.
 */
int32_t kiln_cancel(struct kiln_session *session);

/*
 Asks `text` as the next message of the session's conversation, with the engine's default sampling. `on_text` gets the
 answer's text as it comes, on this thread; `answer` gets all of it, also of an answer that was cut. Each may be NULL. The
 session keeps the question and its complete answer for the next question and for clones; kiln_session_save does not write
 them. The model is asked for no thought, and one that it has all the same is no part of the answer.
 */
int32_t kiln_ask(struct kiln_session *session,
                 struct kiln_text text,
                 kiln_text_function on_text,
                 void *user,
                 char **answer,
                 size_t *length);

/*
 Makes a reply to `request`, the JSON of a chat completion (messages, sampling, response_format, tools). `on_text` gets its
 text as it comes, on this thread. `result` is a JSON object of text, finish_reason, usage, and tool_calls where there are
 some, and reasoning_content where the model thought; it is given for a reply that was cut too. What the cache holds of the conversation is taken over.
 */
int32_t kiln_generate(struct kiln_session *session,
                      struct kiln_text request,
                      kiln_text_function on_text,
                      void *user,
                      char **result,
                      size_t *length);

/*
 Asks any path of the HTTP interface, such as GET /metrics or POST /v1/completions, without a port. `on_body` gets the
 answer's body as it comes, which need not end where a character does. An answer that is an error is KILN_OK, with its status.
 */
int32_t kiln_request(struct kiln_session *session,
                     struct kiln_text method,
                     struct kiln_text path,
                     struct kiln_text body,
                     kiln_text_function on_body,
                     void *user,
                     uint16_t *status);

/*
 Opens an engine to other programs, by HTTP, until kiln_serve_stop. `places` is a JSON array of where it listens; it and
 `length` may be NULL. A server keeps its engine, as a session does.
 */
int32_t kiln_serve_start(struct kiln_engine *engine,
                         const struct kiln_serve_options *options,
                         struct kiln_server **server,
                         char **places,
                         size_t *length);

/*
 Closes what kiln_serve_start opened: takes no more connections, and returns once the requests under way are answered, or
 `grace_seconds` have passed and they were cut.
 */
int32_t kiln_serve_stop(struct kiln_server *server,
                        uint32_t grace_seconds);

/*
 Checks of this machine, as `kiln probe --json` prints them: a JSON object of checks, each with its verdict, and a summary.
 `measures`: whether a GPU is measured too, which takes seconds, and wakes one that is suspended. It needs no engine.
 */
int32_t kiln_probe_json(bool measures,
                        char **json,
                        size_t *length);

/*
 Whether a model fits a machine, where each byte goes and what that allows: the object that `kiln plan --json` prints, whose
 settings have the command line's names. A model that does not fit is no error: `fits` is false then. It needs no engine.
 */
int32_t kiln_plan_json(const struct kiln_plan_options *options,
                       char **json,
                       size_t *length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KILN_H */
