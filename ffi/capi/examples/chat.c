/* Asks the model a question and prints its answer as it comes:
 *     cc chat.c -lkiln && ./a.out MODEL "What is a kiln?"      MODEL "": the built-in one */
#include <kiln.h>
#include <stdio.h>
#include <string.h>

static int print(void *user, struct kiln_text text) {
    (void)user;
    fwrite(text.data, 1, text.length, stdout);
    fflush(stdout);
    return 0;
}

/* Says how the load goes. Anything but 0 would end it. */
static int progress(void *user, struct kiln_text stage, double share) {
    (void)user;
    fprintf(stderr, "\r%.*s %3.0f %%\033[K", (int)stage.length, stage.data, 100 * share);
    return 0;
}

static int complain(void) {
    struct kiln_error error = {.size = sizeof error};
    kiln_last_error(&error);
    fprintf(stderr, "%.*s; %.*s\n", (int)error.message.length, error.message.data, (int)error.remedy.length,
            error.remedy.data);
    return error.code;
}

/* A request's JSON of a question. What JSON escapes is escaped. */
static size_t request_of(const char *question, char *into, size_t room) {
    size_t n = (size_t)snprintf(into, room, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (; *question && n + 16 < room; ++question) {
        unsigned char c = (unsigned char)*question;
        if (c == '"' || c == '\\') into[n++] = '\\';
        if (c < 0x20) n += (size_t)snprintf(into + n, room - n, "\\u%04x", c);
        else into[n++] = (char)c;
    }
    return n + (size_t)snprintf(into + n, room - n, "\"}],\"temperature\":0}");
}

int main(int argc, char **argv) {
    const char *model = argc > 1 ? argv[1] : "", *question = argc > 2 ? argv[2] : "How much is the museum for 2 adults?";
    struct kiln_engine_options options = {
        .size = sizeof options, .model = {model, strlen(model)}, .on_progress = progress};
    struct kiln_engine *engine;
    struct kiln_session *session;
    if (kiln_engine_open(&options, &engine)) return complain();
    fprintf(stderr, "\n");
    if (kiln_session_new(engine, &session)) return complain();

    char request[8192], *result;
    size_t length = request_of(question, request, sizeof request);
    if (kiln_generate(session, (struct kiln_text){request, length}, print, NULL, &result, &length)) return complain();
    printf("\n");
    fprintf(stderr, "%.*s\n", (int)length, result);
    kiln_free(result);

    kiln_session_free(session);
    return kiln_engine_close(engine) ? complain() : 0;
}
