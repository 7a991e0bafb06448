/* Every function, each called by a thread whose stack is as small as docs/c-interface.md allows. */
#include "common.h"
#include <pthread.h>

#define STACK (64 << 10)

static struct kiln_engine *engine;
static struct kiln_session *session;
static struct kiln_server *server;
static const char *file;
static char *given;
static size_t length;
static uint32_t *tokens;
static struct heard heard;

static struct kiln_text text_of(const char *text) {
    return (struct kiln_text){text, strlen(text)};
}

static int progress(void *user, struct kiln_text stage, double share) {
    (void)user, (void)stage, (void)share;
    return 0;
}

static void *probe(void *unused) {
    REQUIRE(kiln_probe_json(true, &given, &length) == KILN_OK);
    return unused;
}

static void *plan(void *unused) {
    REQUIRE(kiln_plan_json(NULL, &given, NULL) == KILN_OK);
    kiln_free(given);
    struct kiln_plan_options options = {
        .size = sizeof options, .shape = TEXT("gemma3-27b"), .machine = TEXT("780m"), .with_schedule = 1};
    REQUIRE(kiln_plan_json(&options, &given, NULL) == KILN_OK);
    return unused;
}

static void *fail(void *unused) {
    struct kiln_engine_options options = {.size = sizeof options, .model = TEXT("/nowhere/at/all")};
    refused(kiln_engine_open(&options, &engine), KILN_INPUT, "/nowhere/at/all");
    return unused;
}

static void *open_engine(void *unused) {
    struct kiln_engine_options options = {.size = sizeof options, .threads = 2, .on_progress = progress};
    options.device = TEXT("cpu");
    REQUIRE(kiln_engine_open(&options, &engine) == KILN_OK);
    return unused;
}

static void *texts(void *unused) {
    REQUIRE(kiln_engine_info_json(engine, &given, NULL) == KILN_OK);
    kiln_free(given);
    REQUIRE(kiln_render_chat(engine, TEXT("[{\"role\":\"user\",\"content\":\"Hello\"}]"), true, &given, &length) == KILN_OK);
    REQUIRE(kiln_tokenize(engine, (struct kiln_text){given, length}, false, &tokens, &length) == KILN_OK);
    kiln_free(given);
    REQUIRE(kiln_detokenize(engine, tokens, length, &given, NULL) == KILN_OK);
    return unused;
}

static void *new_session(void *unused) {
    struct kiln_session *other;
    REQUIRE(kiln_session_new(engine, &session) == KILN_OK);
    REQUIRE(kiln_session_clone(session, &other) == KILN_OK);
    REQUIRE(kiln_cancel(other) == KILN_OK && kiln_session_free(other) == KILN_OK);
    return unused;
}

static void *reply(void *request) {
    heard.length = 0;
    REQUIRE(kiln_generate(session, text_of(request), hear, &heard, &given, NULL) == KILN_OK && heard.length > 0);
    return NULL;
}

static void *ask(void *unused) {
    REQUIRE(kiln_ask(session, TEXT("Hello"), hear, &heard, &given, NULL) == KILN_OK);
    return unused;
}

/* A request that nests as deep as JSON may, and one of which an engine's error comes back. */
static void *nest(void *unused) {
    char deep[400];
    int depth = 120, n = snprintf(deep, sizeof deep, "{\"messages\":%0*d%0*d}", depth, 0, depth, 0);
    memset(strchr(deep, '0'), '[', depth);
    memset(strchr(deep, '0'), ']', depth);
    REQUIRE(n < (int)sizeof deep);
    refused(kiln_generate(session, text_of(deep), NULL, NULL, NULL, NULL), KILN_INPUT, "messages");
    refused(kiln_render_chat(engine, text_of(strchr(deep, '[')), true, &given, NULL), KILN_INPUT, "messages");
    return unused;
}

static void *request(void *unused) {
    uint16_t status;
    REQUIRE(kiln_request(session, TEXT("GET"), TEXT("/metrics"), TEXT(""), hear, &heard, &status) == KILN_OK);
    REQUIRE(status == 200);
    return unused;
}

static void *keep(void *unused) {
    uint32_t some[] = {2, 105, 300, 400};
    REQUIRE(kiln_session_sync(session, some, 4, NULL) == KILN_OK);
    REQUIRE(kiln_session_save(session, text_of(file)) == KILN_OK);
    REQUIRE(kiln_session_load(session, text_of(file), &tokens, &length) == KILN_OK && length == 4);
    return unused;
}

static void *serve(void *unused) {
    struct kiln_serve_options options = {.size = sizeof options, .listen = TEXT("127.0.0.1:0")};
    REQUIRE(kiln_serve_start(engine, &options, &server, &given, NULL) == KILN_OK);
    REQUIRE(kiln_serve_stop(server, 1) == KILN_OK);
    return unused;
}

static void *close_engine(void *unused) {
    REQUIRE(kiln_session_free(session) == KILN_OK && kiln_engine_close(engine) == KILN_OK);
    return unused;
}

static void on_small_stack(void *(*call)(void *), char *of) {
    pthread_attr_t attributes;
    pthread_t thread;
    REQUIRE(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, STACK));
    REQUIRE(!pthread_create(&thread, &attributes, call, of) && !pthread_join(thread, NULL));
    kiln_free(given), kiln_free(tokens);
    given = NULL, tokens = NULL;
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    file = argv[1];
    on_small_stack(probe, NULL);
    on_small_stack(plan, NULL);
    on_small_stack(fail, NULL);
    on_small_stack(open_engine, NULL);
    on_small_stack(texts, NULL);
    on_small_stack(new_session, NULL);
    on_small_stack(reply, ASK "}");
    on_small_stack(reply, ASK ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"p\",\"schema\":"
                              "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":9}},"
                              "\"required\":[\"a\"],\"additionalProperties\":false}}}}");
    on_small_stack(ask, NULL);
    on_small_stack(nest, NULL);
    on_small_stack(request, NULL);
    on_small_stack(keep, NULL);
    on_small_stack(serve, NULL);
    on_small_stack(close_engine, NULL);
    puts("all of them");
    return 0;
}
