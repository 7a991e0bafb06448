/* libkiln: Kiln's C interface. Made of ffi/capi/src/border; `KILN_BLESS=1 cargo test -p kiln-capi` makes it anew.
 *
 * A handle is a number in the place of a pointer: a closed handle is an error and not a crash. Functions block; any thread may
 * call each. A function returns KILN_OK or the kind of error, and kiln_last_error has the words. Texts are UTF-8, with lengths.
 * A text that a function gives ends with a 0 that its length does not count, and is freed with kiln_free. */

#ifndef KILN_H
#define KILN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 The interface's version. It changes when a program that was compiled for the version before may no longer run.
 */
#define KILN_ABI_VERSION 1

/*
 The call did its work.
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
 A model or a request does not fit this machine's memory, or there is no place for it now.
 */
#define KILN_REFUSED 3

/*
 A device is absent, unusable or lost.
 */
#define KILN_DEVICE 4

/*
 The work was cancelled, or the caller's function ended it.
 */
#define KILN_INTERRUPTED 5

/*
 A loaded model. Several may be open at once.
 */
typedef struct kiln_engine kiln_engine;

/*
 Places where other programs reach an engine.
 */
typedef struct kiln_server kiln_server;

/*
 A conversation with an engine, and the tokens that the session was brought to. All sessions of an engine share the
 engine's batch. Any thread may use a session.
 */
typedef struct kiln_session kiln_session;

/*
 A UTF-8 text. `data` may be NULL if `length` is 0.
 */
typedef struct kiln_text {
    /*
     The text's first byte.
     */
    const char *data;
    /*
     The number of bytes.
     */
    size_t length;
} kiln_text;

/*
 The result of the thread's last call. The texts belong to Kiln, and are valid until the thread's next call of any
 function but kiln_last_error.
 */
typedef struct kiln_error {
    /*
     sizeof(struct kiln_error), set by the caller.
     */
    size_t size;
    /*
     KILN_OK, or the kind of error.
     */
    int32_t code;
    /*
     The error.
     */
    struct kiln_text message;
    /*
     The remedy.
     */
    struct kiln_text remedy;
} kiln_error;

/*
 The caller's function that gets a line of the log: the level, 1 (error) to 5 (trace), and the text. Any thread may
 call it.
 */
typedef void (*kiln_log_function)(void *user, uint32_t level, struct kiln_text line);

/*
 The caller's function that gets a load's stage (loading, tuning, first token, ready) and the share of the stage that
 is done, from 0 to 1. The loading thread calls it. A result other than 0 ends the load.
 */
typedef int (*kiln_progress_function)(void *user, struct kiln_text stage, double share);

/*
 The settings of an engine. Zero and empty are the defaults.
 */
typedef struct kiln_engine_options {
    /*
     sizeof(struct kiln_engine_options), set by the caller. Fields beyond that size have their defaults.
     */
    size_t size;
    /*
     The model: a directory, a GGUF file, or the id of a model in the Hugging Face hub's cache. Empty: the built-in one.
     */
    struct kiln_text model;
    /*
     auto, vulkan, vulkan:N, amdgpu, amdgpu:N, cpu or reference.
     */
    struct kiln_text device;
    /*
     int8, int4 or bf16.
     */
    struct kiln_text weights;
    /*
     The system message of conversations that have none of their own.
     */
    struct kiln_text system;
    /*
     The places where other programs may reach the engine by HTTP: ADDRESS:PORT or unix:PATH, with commas between
     several.
     */
    struct kiln_text listen;
    /*
     The longest sequence, in tokens.
     */
    uint32_t context;
    /*
     The number of replies made at once.
     */
    uint32_t batch;
    /*
     Threads on the CPU.
     */
    uint32_t threads;
    /*
     Called with the progress of the load; may be NULL.
     */
    kiln_progress_function on_progress;
    /*
     The `user` argument of calls of `on_progress`.
     */
    void *user;
} kiln_engine_options;

/*
 Counts of a session's tokens by their origin. Each token is in one of the three.
 */
typedef struct kiln_synced {
    /*
     sizeof(struct kiln_synced), set by the caller.
     */
    size_t size;
    /*
     Tokens whose keys and values were in the cache.
     */
    size_t reused;
    /*
     Tokens that were run behind the session's tokens.
     */
    size_t extended;
    /*
     Tokens that were run in the place of other tokens of the session, or of tokens that the cache had lost.
     */
    size_t rebuilt;
} kiln_synced;

/*
 The caller's function that gets a piece of a reply's text. A result other than 0 ends the reply.
 */
typedef int (*kiln_text_function)(void *user, struct kiln_text text);

/*
 The settings of a server. Zero and empty are the defaults.
 */
typedef struct kiln_serve_options {
    /*
     sizeof(struct kiln_serve_options), set by the caller. Fields beyond that size have their defaults.
     */
    size_t size;
    /*
     The places to listen at: ADDRESS:PORT or unix:PATH, with commas between several. Port 0 is any free port. Empty:
     127.0.0.1:8080.
     */
    struct kiln_text listen;
    /*
     A file of API keys, one on each line, of which a request needs one. An address that other machines reach needs
     such a file.
     */
    struct kiln_text keys;
} kiln_serve_options;

/*
 The settings of a plan. Zero and empty are the defaults.
 */
typedef struct kiln_plan_options {
    /*
     sizeof(struct kiln_plan_options), set by the caller. Fields beyond that size have their defaults.
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
     A smaller model that drafts for the model: by name, as `model`, or demo.
     */
    struct kiln_text draft;
    /*
     The longest sequence, in tokens.
     */
    uint32_t context;
    /*
     The number of sequences that run at once.
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
     Other than 0: the object has every step of a pass, too.
     */
    uint32_t with_schedule;
} kiln_plan_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 KILN_ABI_VERSION of the loaded library.
 */
uint32_t kiln_abi_version(void);

/*
 Writes the result of this thread's last call to `error`. That result stays.
 */
int32_t kiln_last_error(struct kiln_error *error);

/*
 Frees memory that a function has given. Does nothing for NULL.
 */
void kiln_free(void *given);

/*
 Has `function` called with each line of the log up to `level`, 1 (error) to 5 (trace). NULL ends that. Any thread
 may call `function`.
 */
int32_t kiln_set_log(uint32_t level, kiln_log_function function, void *user);

/*
 Loads a model, and returns once the model answers. KILN_INTERRUPTED: `on_progress` ended the load.
 */
int32_t kiln_engine_open(const struct kiln_engine_options *options,
                         struct kiln_engine **engine);

/*
 Closes an engine. Work under way ends, and the engine's memory is freed once the last call that uses the engine has
 returned.
 */
int32_t kiln_engine_close(struct kiln_engine *engine);

/*
 The engine in figures: a JSON object of model, device, context, batch, seconds to the first token, and the places
 where other programs reach the engine.
 */
int32_t kiln_engine_info_json(struct kiln_engine *engine, char **json, size_t *length);

/*
 The tokens of a text. `begins`: whether the beginning-of-text token stands before them.
 */
int32_t kiln_tokenize(struct kiln_engine *engine, struct kiln_text text, bool begins, uint32_t **tokens, size_t *count);

/*
 The text of tokens.
 */
int32_t kiln_detokenize(struct kiln_engine *engine, const uint32_t *tokens, size_t count, char **text, size_t *length);

/*
 The text that the model's chat template makes of messages. `messages` is a JSON array of objects with role and
 content. `opens`: whether the text opens the model's turn behind the messages.
 */
int32_t kiln_render_chat(struct kiln_engine *engine,
                         struct kiln_text messages,
                         bool opens,
                         char **text,
                         size_t *length);

/*
 Opens a session of an engine.
 */
int32_t kiln_session_new(struct kiln_engine *engine, struct kiln_session **session);

/*
 Closes a session. A call that uses the session ends first, as if it were cancelled.
 */
int32_t kiln_session_free(struct kiln_session *session);

/*
 Opens another session of the same engine with the same tokens. The two go on apart, and share the keys and values in
 the cache.
 */
int32_t kiln_session_clone(struct kiln_session *session, struct kiln_session **clone);

/*
 Brings a session to `tokens`: the engine's cache then holds their keys and values, and a prompt that begins with
 these tokens goes on behind them. Keys and values that the cache has are kept, and the other tokens are run.
 `synced` gets the counts of both; it may be NULL. The cache keeps a session as it keeps conversations: when other
 sequences need the room, its tokens are dropped, and run again with the next call that needs them. Replies of the
 session do not change its tokens.
 */
int32_t kiln_session_sync(struct kiln_session *session,
                          const uint32_t *tokens,
                          size_t count,
                          struct kiln_synced *synced);

/*
 Writes a session's tokens with their keys and values to a file, all or nothing. A file at `path` that is no
 session's is not replaced. The file holds the conversation, and this user alone may read it.
 */
int32_t kiln_session_save(struct kiln_session *session, struct kiln_text path);

/*
 Brings a session to the tokens of a file that kiln_session_save wrote, of the same model on the same device, in this
 process or another. A reply behind them is the same as in the saved session. `tokens` gets the tokens, and `count`
 their number; both may be NULL.
 */
int32_t kiln_session_load(struct kiln_session *session, struct kiln_text path, uint32_t **tokens, size_t *count);

/*
 Cancels the session's calls under way, from any thread. These return KILN_INTERRUPTED. The next call runs again.
 */
int32_t kiln_cancel(struct kiln_session *session);

/*
 Asks `text` as the next message of the session's conversation, with the engine's default sampling. `on_text` gets
 the answer's text piece by piece, on this thread; `answer` gets the whole text, also of an answer that was cut. Each
 may be NULL. The session keeps the question and its complete answer for the next question and for clones;
 kiln_session_save does not write them. The model is not asked to think; a thought is no part of the answer.
 */
int32_t kiln_ask(struct kiln_session *session,
                 struct kiln_text text,
                 kiln_text_function on_text,
                 void *user,
                 char **answer,
                 size_t *length);

/*
 Makes a reply to `request`, the JSON of a chat completion (messages, sampling, response_format, tools). `on_text`
 gets the reply's text piece by piece, on this thread. `result` gets a JSON object of text, finish_reason and usage,
 with tool_calls if the model calls functions, and reasoning_content if the model thinks; a reply that was cut has
 such an object, too. Tokens of the conversation that the cache holds are not run again.
 */
int32_t kiln_generate(struct kiln_session *session,
                      struct kiln_text request,
                      kiln_text_function on_text,
                      void *user,
                      char **result,
                      size_t *length);

/*
 Asks any path of the HTTP interface, such as GET /metrics or POST /v1/completions, without a port. `on_body` gets
 the answer's body piece by piece; a piece may end inside a character. An answer that is an error is KILN_OK, with
 its status.
 */
int32_t kiln_request(struct kiln_session *session,
                     struct kiln_text method,
                     struct kiln_text path,
                     struct kiln_text body,
                     kiln_text_function on_body,
                     void *user,
                     uint16_t *status);

/*
 Opens an engine to other programs, by HTTP, until kiln_serve_stop. `places` gets a JSON array of the places where
 the server listens. `places` and `length` may be NULL. A server keeps its engine, as a session does.
 */
int32_t kiln_serve_start(struct kiln_engine *engine,
                         const struct kiln_serve_options *options,
                         struct kiln_server **server,
                         char **places,
                         size_t *length);

/*
 Closes a server: takes no more connections, and returns once the requests under way are answered, or are cut after
 `grace_seconds`.
 */
int32_t kiln_serve_stop(struct kiln_server *server, uint32_t grace_seconds);

/*
 Checks of this machine, as `kiln probe --json` prints them: a JSON object of checks, each with its verdict, and a
 summary. `measures`: whether a GPU is measured too, which takes seconds and wakes a suspended GPU. No engine is
 needed.
 */
int32_t kiln_probe_json(bool measures, char **json, size_t *length);

/*
 Whether a model fits a machine, the use of each byte, and the speed to expect: the object that `kiln plan --json`
 prints, whose settings have the command line's names. A model that does not fit is no error: `fits` is false then.
 No engine is needed.
 */
int32_t kiln_plan_json(const struct kiln_plan_options *options,
                       char **json,
                       size_t *length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KILN_H */
