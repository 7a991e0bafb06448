/* What a C program may do to libkiln, rightly and wrongly. Says what it checked; ends with 1 at the first thing that is not so. */
#include "common.h"
#include "faults.h"
#include <pthread.h>
#include <stdatomic.h>

/* Plans, of machines that are not here and of this one. */
static void planned(void) {
    struct kiln_plan_options options = {.size = sizeof options, .shape = TEXT("gemma3-27b"), .machine = TEXT("780m")};
    char *json = NULL;
    size_t length;
    REQUIRE(kiln_plan_json(&options, &json, &length) == KILN_OK && length == strlen(json));
    REQUIRE(strstr(json, "\"verdict\":\"fits; ") && strstr(json, "\"fits\":true") && !strstr(json, "\"schedule\""));
    kiln_free(json);
    options.ram_gib = 1025;
    refused(kiln_plan_json(&options, &json, NULL), KILN_INPUT, "1025 GiB");
    options.ram_gib = 16;
    options.with_schedule = 1;
    REQUIRE(kiln_plan_json(&options, &json, NULL) == KILN_OK);
    REQUIRE(strstr(json, "\"verdict\":\"does not fit: ") && strstr(json, "\"fits\":false") && strstr(json, "\"schedule\""));
    kiln_free(json);
    options.machine = TEXT("this");
    refused(kiln_plan_json(&options, &json, NULL), KILN_INPUT, "that of a machine by name");
    options.machine = TEXT("toaster");
    refused(kiln_plan_json(&options, &json, NULL), KILN_INPUT, "toaster");
    options = (struct kiln_plan_options){.size = sizeof options, .shape = TEXT("gemma3-99b")};
    refused(kiln_plan_json(&options, &json, NULL), KILN_INPUT, "gemma3-99b");
    options.model = TEXT("demo");
    refused(kiln_plan_json(&options, &json, NULL), KILN_INPUT, "one is planned");
    options.shape = TEXT("");
    options.device = TEXT("cpu");
    options.context = 1u << 30;
    refused(kiln_plan_json(&options, &json, NULL), KILN_INPUT, "context");
    options.context = 0;
    options.draft = TEXT("nonsense");
    refused(kiln_plan_json(&options, &json, NULL), KILN_INPUT, "nonsense");
    REQUIRE(kiln_plan_json(NULL, &json, NULL) == KILN_OK && strstr(json, "\"model\":\"demo\""));
    kiln_free(json);
    puts("planned");
}

static void nonsense(void) {
    struct kiln_engine *engine = (void *)1;
    struct kiln_engine_options options = {.size = sizeof options, .device = TEXT("toaster")};
    refused(kiln_engine_open(&options, &engine), KILN_INPUT, "toaster");
    REQUIRE(engine == NULL);
    options.device = TEXT("cpu");
    options.weights = TEXT("int3");
    refused(kiln_engine_open(&options, &engine), KILN_INPUT, "int3");
    options.weights = (struct kiln_text){NULL, 0};
    options.model = TEXT("/nowhere/at/all");
    refused(kiln_engine_open(&options, &engine), KILN_INPUT, "/nowhere/at/all");
    options.model = TEXT("");
    options.context = 1u << 30;
    refused(kiln_engine_open(&options, &engine), KILN_INPUT, "context");
    options.context = 0;
    options.listen = TEXT("everywhere");
    refused(kiln_engine_open(&options, &engine), KILN_INPUT, "everywhere");

    char *text;
    size_t length;
    REQUIRE(kiln_probe_json(false, &text, &length) == KILN_OK && length == strlen(text));
    REQUIRE(strstr(text, "\"checks\":[{\"name\":") && strstr(text, "\"summary\":{\"runs\":"));
    kiln_free(text);
    REQUIRE(kiln_probe_json(false, &text, NULL) == KILN_OK);
    kiln_free(text);
    planned();
    kiln_free(NULL);
    puts("nonsense");
}

static void texts(struct kiln_engine *engine) {
    uint32_t *tokens;
    size_t count, length;
    char *text;
    REQUIRE(kiln_tokenize(engine, TEXT("How much is the museum?"), true, &tokens, &count) == KILN_OK && count > 4);
    REQUIRE(kiln_detokenize(engine, tokens + 1, count - 1, &text, &length) == KILN_OK);
    REQUIRE(length == strlen(text) && !strcmp(text, "How much is the museum?"));
    kiln_free(text);
    kiln_free(tokens);
    REQUIRE(kiln_tokenize(engine, TEXT(""), false, &tokens, &count) == KILN_OK && count == 0);
    kiln_free(tokens);
    uint32_t beyond[] = {2, 4000000000u};
    refused(kiln_detokenize(engine, beyond, 2, &text, &length), KILN_INPUT, "4000000000");
    struct kiln_text messages = TEXT("[{\"role\":\"user\",\"content\":\"Hello\"}]");
    REQUIRE(kiln_render_chat(engine, messages, true, &text, NULL) == KILN_OK);
    REQUIRE(strstr(text, "<start_of_turn>user\nHello<end_of_turn>") && strstr(text, "<start_of_turn>model\n"));
    kiln_free(text);
    refused(kiln_render_chat(engine, TEXT("[]"), true, &text, &length), KILN_INPUT, "conversation is empty");
    refused(kiln_render_chat(engine, TEXT("{"), true, &text, &length), KILN_INPUT, "messages");
    REQUIRE(kiln_engine_info_json(engine, &text, &length) == KILN_OK && strstr(text, "\"model\":\"demo\""));
    kiln_free(text);
    puts("texts");
}

static void replies(struct kiln_engine *engine) {
    struct kiln_session *session;
    char *result;
    size_t length;
    REQUIRE(kiln_session_new(engine, &session) == KILN_OK);
    struct heard heard = {.length = 0}, again = {.length = 0};
    REQUIRE(kiln_generate(session, TEXT(ASK "}"), hear, &heard, &result, &length) == KILN_OK);
    REQUIRE(strstr(heard.text, "museum") && strstr(result, "\"finish_reason\":\"stop\"") && length == strlen(result));
    REQUIRE(strstr(result, "\"prompt_tokens\""));
    kiln_free(result);
    REQUIRE(kiln_generate(session, TEXT(ASK "}"), hear, &again, NULL, NULL) == KILN_OK);
    REQUIRE(!strcmp(heard.text, again.text));
    /* A document of a schema. */
    struct heard document = {.length = 0};
    struct kiln_text request = TEXT(ASK ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"p\",\"schema\":"
                                        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":9}},"
                                        "\"required\":[\"a\"],\"additionalProperties\":false}}}}");
    REQUIRE(kiln_generate(session, request, hear, &document, NULL, NULL) == KILN_OK);
    char digit = 0;
    REQUIRE(sscanf(document.text, " { \"a\" : %c", &digit) == 1 && digit >= '0' && digit <= '9');
    /* What is wrong with a request is said, and the session goes on. */
    refused(kiln_generate(session, TEXT("{"), hear, &heard, &result, &length), KILN_INPUT, "JSON");
    refused(kiln_generate(session, TEXT("[]"), hear, &heard, &result, &length), KILN_INPUT, "object");
    refused(kiln_generate(session, TEXT("{\"messages\":[]}"), hear, &heard, &result, &length), KILN_INPUT, "messages");
    refused(kiln_generate(session, TEXT(ASK ",\"top_p\":7}"), hear, &heard, &result, &length), KILN_INPUT, "top_p");
    refused(kiln_generate(session, TEXT(ASK ",\"n\":2}"), hear, &heard, &result, &length), KILN_INPUT, "n ");
    /* The caller's function ends a reply, which is given as far as it came. */
    struct heard few = {.stop_after = 2};
    refused(kiln_generate(session, TEXT(ASK "}"), hear, &few, &result, &length), KILN_INTERRUPTED, "took no more");
    REQUIRE(few.pieces == 2 && strstr(result, few.text));
    kiln_free(result);
    /* Any path. */
    uint16_t status;
    struct heard body = {.length = 0};
    REQUIRE(kiln_request(session, TEXT("GET"), TEXT("/v1/models"), TEXT(""), hear, &body, &status) == KILN_OK);
    REQUIRE(status == 200 && strstr(body.text, "demo"));
    REQUIRE(kiln_request(session, TEXT("GET"), TEXT("/none"), TEXT(""), NULL, NULL, &status) == KILN_OK && status == 404);
    refused(kiln_request(session, TEXT("EAT"), TEXT("/"), TEXT(""), NULL, NULL, &status), KILN_INPUT, "EAT");
    refused(kiln_request(session, TEXT("GET"), TEXT("/ \r\nX: y"), TEXT(""), NULL, NULL, &status), KILN_INPUT, "path");
    REQUIRE(kiln_session_free(session) == KILN_OK);
    refused(kiln_session_free(session), KILN_INPUT, "given back");
    refused(kiln_generate(session, TEXT(ASK "}"), hear, &heard, NULL, NULL), KILN_INPUT, "given back");
    puts("replies");
}

/* Questions without JSON: each answer is given whole, also one that the caller ended. */
static void asked(struct kiln_engine *engine) {
    struct kiln_session *session;
    char *answer;
    size_t length;
    struct heard heard = {.length = 0}, few = {.stop_after = 1};
    REQUIRE(kiln_session_new(engine, &session) == KILN_OK);
    REQUIRE(kiln_ask(session, TEXT("How much is the museum\nfor \"2\" adults?"), hear, &heard, &answer, &length) == KILN_OK);
    REQUIRE(heard.length && length == strlen(answer) && !strcmp(heard.text, answer));
    kiln_free(answer);
    REQUIRE(kiln_ask(session, TEXT("And for 3?"), NULL, NULL, NULL, NULL) == KILN_OK);
    refused(kiln_ask(session, TEXT("And for 4?"), hear, &few, &answer, NULL), KILN_INTERRUPTED, "took no more");
    REQUIRE(few.pieces == 1 && !strcmp(few.text, answer));
    kiln_free(answer);
    REQUIRE(kiln_session_free(session) == KILN_OK);
    puts("asked");
}

static atomic_int begun;

static int begin(void *user, struct kiln_text piece) {
    (void)user, (void)piece;
    atomic_store(&begun, 1);
    return 0;
}

static void *endless(void *session) {
    /* 2,000 tokens, whatever the model would end with. */
    int code = kiln_generate(session, TEXT(ASK ",\"ignore_eos\":true,\"max_tokens\":2000}"), begin, NULL, NULL, NULL);
    return (void *)(intptr_t)code;
}

static void cancelled(struct kiln_engine *engine, int (*end)(struct kiln_session *)) {
    struct kiln_session *session;
    pthread_t thread;
    void *code;
    atomic_store(&begun, 0);
    REQUIRE(kiln_session_new(engine, &session) == KILN_OK);
    REQUIRE(!pthread_create(&thread, NULL, endless, session));
    while (!atomic_load(&begun)) usleep(1000);
    REQUIRE(end(session) == KILN_OK);
    REQUIRE(!pthread_join(thread, &code) && (intptr_t)code == KILN_INTERRUPTED);
    if (end == kiln_cancel) {
        struct heard heard = {.length = 0};
        REQUIRE(kiln_generate(session, TEXT(ASK "}"), hear, &heard, NULL, NULL) == KILN_OK);
        REQUIRE(kiln_session_free(session) == KILN_OK);
    }
    puts(end == kiln_cancel ? "cancelled" : "freed in use");
}

static void many_sessions(struct kiln_engine *engine, int count) {
    long before = 0;
    for (int i = 0; i < count; ++i) {
        struct kiln_session *session;
        struct heard heard = {.length = 0};
        struct kiln_session *other;
        uint32_t tokens[] = {2, 105, 300 + (uint32_t)i % 100, 400};
        REQUIRE(kiln_session_new(engine, &session) == KILN_OK);
        REQUIRE(kiln_generate(session, TEXT(ASK ",\"max_tokens\":1}"), hear, &heard, NULL, NULL) == KILN_OK);
        REQUIRE(kiln_session_sync(session, tokens, 4, NULL) == KILN_OK);
        REQUIRE(kiln_session_clone(session, &other) == KILN_OK);
        REQUIRE(kiln_session_free(session) == KILN_OK && kiln_session_free(other) == KILN_OK);
        if (i == count / 5) before = resident_kb();
    }
    long grown = resident_kb() - before;
    printf("%d sessions, %ld KiB more than after a fifth\n", count, grown);
    REQUIRE(count < 1000 || grown < 8192);
}

static void *open_and_ask(void *opened) {
    struct kiln_engine *engine = open_demo(512);
    struct kiln_session *session;
    static _Thread_local struct heard heard;
    REQUIRE(kiln_session_new(engine, &session) == KILN_OK);
    REQUIRE(kiln_generate(session, TEXT(ASK "}"), hear, &heard, NULL, NULL) == KILN_OK && strstr(heard.text, "museum"));
    /* A session keeps its engine. */
    REQUIRE(kiln_engine_close(engine) == KILN_OK);
    heard.length = 0;
    REQUIRE(kiln_generate(session, TEXT(ASK "}"), hear, &heard, NULL, NULL) == KILN_OK);
    REQUIRE(kiln_session_free(session) == KILN_OK);
    *(struct kiln_engine **)opened = engine;
    return NULL;
}

static atomic_int lines;

static void log_line(void *user, uint32_t level, struct kiln_text line) {
    if (user == &lines && level >= 1 && level <= 3 && line.length) atomic_fetch_add(&lines, 1);
}

int main(int argc, char **argv) {
    REQUIRE(kiln_abi_version() == KILN_ABI_VERSION);
    REQUIRE(kiln_set_log(3, log_line, &lines) == KILN_OK);
    nonsense();
    struct kiln_engine *engine = open_demo(0);
    REQUIRE(atomic_load(&lines) > 0);
    REQUIRE(kiln_set_log(0, NULL, NULL) == KILN_OK);
    texts(engine);
    replies(engine);
    asked(engine);
    cancelled(engine, kiln_cancel);
    cancelled(engine, kiln_session_free);
    many_sessions(engine, argc > 1 ? atoi(argv[1]) : 1000);
    pthread_t others[2];
    struct kiln_engine *closed[2];
    for (int i = 0; i < 2; ++i) REQUIRE(!pthread_create(&others[i], NULL, open_and_ask, &closed[i]));
    for (int i = 0; i < 2; ++i) REQUIRE(!pthread_join(others[i], NULL));
    puts("three engines");
    faults(engine, closed[0]);
    REQUIRE(kiln_engine_close(engine) == KILN_OK);
    refused(kiln_engine_close(engine), KILN_INPUT, "given back");
    return 0;
}
