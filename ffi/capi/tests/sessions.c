/* A session's tokens, as a C program keeps them:
 *     sessions keep DIRECTORY      brings a session to tokens, saves it, goes on from it, and does what is refused
 *     sessions go-on DIRECTORY     in another process: loads it, and goes on
 * Both print the reply with its log probabilities, which is to be the same to the last bit. */
#include "common.h"

static char path[4096], other[4096];

static struct kiln_text at(const char *place) { return (struct kiln_text){place, strlen(place)}; }

struct told {
    int calls, is_ready, stop_at;
    double last;
};

static int tell(void *user, struct kiln_text stage, double share) {
    struct told *told = user;
    REQUIRE(share >= 0 && share <= 1 && !told->is_ready && stage.length);
    REQUIRE(told->calls || (stage.length == 7 && !memcmp(stage.data, "loading", 7) && share == 0));
    told->is_ready = stage.length == 5 && !memcmp(stage.data, "ready", 5);
    told->last = share;
    return ++told->calls == told->stop_at;
}

static int open_watched(struct told *told, struct kiln_engine **engine) {
    struct kiln_engine_options options = {
        .size = sizeof options, .device = TEXT("cpu"), .threads = 2, .batch = 2, .on_progress = tell, .user = told};
    return kiln_engine_open(&options, engine);
}

/* The reply behind tokens, and how many of them the cache held. */
static size_t go_on(struct kiln_session *session, const uint32_t *tokens, size_t count, char *reply, size_t room) {
    static char request[16384];
    static struct heard body;
    size_t n = (size_t)snprintf(request, sizeof request, "{\"prompt\":[");
    for (size_t i = 0; i < count; ++i)
        n += (size_t)snprintf(request + n, sizeof request - n, "%s%u", i ? "," : "", (unsigned)tokens[i]);
    snprintf(request + n, sizeof request - n, "],\"temperature\":0,\"max_tokens\":8,\"logprobs\":2}");
    body.length = 0, body.pieces = 0;
    uint16_t status;
    REQUIRE(kiln_request(session, TEXT("POST"), TEXT("/v1/completions"), at(request), hear, &body, &status) == KILN_OK);
    REQUIRE(status == 200);
    const char *choices = strstr(body.text, "\"choices\""), *usage = strstr(body.text, "\"usage\"");
    REQUIRE(choices && usage && choices < usage && (size_t)(usage - choices) < room);
    memcpy(reply, choices, (size_t)(usage - choices));
    reply[usage - choices] = 0;
    const char *cached = strstr(usage, "\"cached_tokens\":");
    return cached ? (size_t)strtoul(cached + strlen("\"cached_tokens\":"), NULL, 10) : 0;
}

/* The tokens of a conversation that is longer than a page of the cache, with room for as many more. */
static uint32_t *conversation(struct kiln_engine *engine, size_t *count) {
    struct kiln_text messages = TEXT(
        "[{\"role\":\"user\",\"content\":\"How much is the museum for 2 adults?\"},{\"role\":\"assistant\",\"content\":\"It is "
        "free on the first Sunday of each month, and otherwise there are tickets for adults, children and families.\"},"
        "{\"role\":\"user\",\"content\":\"And when does it open on a Monday, and how long is the way from the station to it?\"}]");
    char *text;
    uint32_t *tokens;
    REQUIRE(kiln_render_chat(engine, messages, true, &text, NULL) == KILN_OK);
    REQUIRE(kiln_tokenize(engine, at(text + strlen("<bos>")), true, &tokens, count) == KILN_OK && *count > 70);
    kiln_free(text);
    return tokens;
}

static void synced(struct kiln_session *session, const uint32_t *tokens, size_t count, size_t reused, size_t extended,
                   size_t rebuilt) {
    struct kiln_synced is = {.size = sizeof is};
    REQUIRE(kiln_session_sync(session, tokens, count, &is) == KILN_OK);
    if (is.reused == reused && is.extended == extended && is.rebuilt == rebuilt) return;
    fprintf(stderr, "of %zu tokens %zu were reused, %zu extended and %zu rebuilt, not %zu, %zu and %zu\n", count, is.reused,
            is.extended, is.rebuilt, reused, extended, rebuilt);
    exit(1);
}

/* Prints what a session that has these tokens answers to one more; frees them. */
static void say_reply(struct kiln_session *session, uint32_t *tokens, size_t count) {
    static char reply[4096];
    uint32_t *prompt = realloc(tokens, (count + 1) * sizeof *prompt);
    REQUIRE(prompt);
    prompt[count] = 301;
    REQUIRE(go_on(session, prompt, count + 1, reply, sizeof reply) == count);
    printf("reply %s\n", reply);
    kiln_free(prompt);
}

static void keep(void) {
    struct told told = {.stop_at = 1}, whole = {.stop_at = 0};
    struct kiln_engine *engine = (void *)1;
    refused(open_watched(&told, &engine), KILN_INTERRUPTED, "ended the load");
    REQUIRE(engine == NULL && told.calls == 1);
    REQUIRE(open_watched(&whole, &engine) == KILN_OK && whole.is_ready && whole.last == 1 && whole.calls >= 2);
    size_t count;
    uint32_t *tokens = conversation(engine, &count);
    struct kiln_session *session, *twin;
    REQUIRE(kiln_session_new(engine, &session) == KILN_OK);

    /* What is refused, and changes nothing. */
    refused(kiln_session_save(session, at(path)), KILN_INPUT, "holds no tokens");
    refused(kiln_session_sync(session, tokens, 0, NULL), KILN_INPUT, "empty");
    uint32_t beyond[] = {2, 4000000000u};
    refused(kiln_session_sync(session, beyond, 2, NULL), KILN_INPUT, "4000000000");

    /* New tokens, the same, more, fewer, and others from a place on. */
    synced(session, tokens, 70, 0, 70, 0);
    synced(session, tokens, 70, 70, 0, 0);
    synced(session, tokens, count, 70, count - 70, 0);
    synced(session, tokens, 66, 66, 0, 0);
    synced(session, tokens, count, count, 0, 0);
    uint32_t *changed = malloc(count * sizeof *changed);
    REQUIRE(changed);
    memcpy(changed, tokens, count * sizeof *changed);
    changed[count - 3] = 300;
    REQUIRE(kiln_session_clone(session, &twin) == KILN_OK);
    synced(twin, changed, count, count - 3, 0, 3);
    /* What the clone took over is run again. */
    synced(session, tokens, count, count - 3, 0, 3);
    REQUIRE(kiln_session_free(twin) == KILN_OK);
    free(changed);
    puts("synced");

    /* Saved; what is no session stays as it is, and is none. */
    struct kiln_text not_paths[] = {{"", 0}, {"a\0b", 3}};
    for (size_t i = 0; i < sizeof not_paths / sizeof *not_paths; ++i) {
        refused(kiln_session_save(session, not_paths[i]), KILN_INPUT, "path");
        refused(kiln_session_load(session, not_paths[i], NULL, NULL), KILN_INPUT, "path");
    }
    FILE *letter = fopen(other, "w");
    REQUIRE(letter && fputs("a letter to somebody", letter) > 0 && !fclose(letter));
    refused(kiln_session_save(session, at(other)), KILN_INPUT, "stays as it is");
    refused(kiln_session_load(session, at(other), NULL, NULL), KILN_INPUT, "no file of a session");
    refused(kiln_session_load(session, TEXT("/nowhere/at/all"), NULL, NULL), KILN_INPUT, "does not exist");
    refused(kiln_session_save(session, TEXT("/nowhere/at/all")), KILN_FAILED, "/nowhere/at/all");
    REQUIRE(kiln_session_save(session, at(path)) == KILN_OK && kiln_session_save(session, at(path)) == KILN_OK);
    char line[64] = "";
    REQUIRE((letter = fopen(other, "r")) && fgets(line, sizeof line, letter) && !fclose(letter));
    REQUIRE(!strcmp(line, "a letter to somebody"));

    /* One that was cut off is refused, and the session is what it was. */
    FILE *whole_file = fopen(path, "rb"), *cut = fopen(other, "wb");
    static char bytes[1 << 22];
    size_t length = whole_file ? fread(bytes, 1, sizeof bytes, whole_file) : 0;
    REQUIRE(cut && length > 1000 && fwrite(bytes, 1, length - 1, cut) == length - 1 && !fclose(cut) && !fclose(whole_file));
    refused(kiln_session_load(session, at(other), NULL, NULL), KILN_INPUT, "damaged");
    synced(session, tokens, count, count, 0, 0);
    puts("saved");

    say_reply(session, tokens, count);
    REQUIRE(kiln_session_free(session) == KILN_OK && kiln_engine_close(engine) == KILN_OK);
}

static void load_and_go_on(void) {
    struct kiln_engine *engine = open_demo(0);
    struct kiln_session *session, *twin;
    uint32_t *tokens;
    size_t count;
    REQUIRE(kiln_session_new(engine, &session) == KILN_OK);
    REQUIRE(kiln_session_load(session, at(path), NULL, NULL) == KILN_OK);
    REQUIRE(kiln_session_load(session, at(path), &tokens, &count) == KILN_OK && count > 70);
    REQUIRE(kiln_session_clone(session, &twin) == KILN_OK);
    synced(twin, tokens, count, count, 0, 0);
    say_reply(twin, tokens, count);
    REQUIRE(kiln_session_free(session) == KILN_OK && kiln_session_free(twin) == KILN_OK);
    REQUIRE(kiln_engine_close(engine) == KILN_OK);
}

int main(int argc, char **argv) {
    REQUIRE(argc == 3);
    snprintf(path, sizeof path, "%s/session", argv[2]);
    snprintf(other, sizeof other, "%s/other", argv[2]);
    if (!strcmp(argv[1], "keep")) keep();
    else load_and_go_on();
    return 0;
}
