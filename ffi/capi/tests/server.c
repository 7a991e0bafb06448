/* An engine that other programs reach by HTTP for a while, as a C program opens and closes it: server DIRECTORY */
#include "common.h"
#include <arpa/inet.h>
#include <sys/socket.h>

/* The status of an answer to GET `path`; 0 where nothing listens. */
static int status_of(int port, const char *path, const char *header) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[4096];
    int status = 0, at = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(at >= 0);
    if (connect(at, (struct sockaddr *)&to, sizeof to) == 0) {
        int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n", path, header);
        REQUIRE(write(at, text, (size_t)n) == n);
        size_t length = 0;
        for (ssize_t got; (got = read(at, text + length, sizeof text - 1 - length)) > 0;) length += (size_t)got;
        text[length] = 0;
        REQUIRE(sscanf(text, "HTTP/1.1 %d", &status) == 1);
    }
    close(at);
    return status;
}

static int port_of(const char *places) {
    const char *colon = strrchr(places, ':');
    REQUIRE(colon);
    return atoi(colon + 1);
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    char keys[4096];
    snprintf(keys, sizeof keys, "%s/keys", argv[1]);
    struct kiln_engine *engine = open_demo(256);
    struct kiln_server *open, *guarded, *none = (void *)1;
    char *places;
    size_t length;

    struct kiln_serve_options options = {.size = sizeof options, .listen = TEXT("everywhere")};
    refused(kiln_serve_start(engine, &options, &none, NULL, NULL), KILN_INPUT, "everywhere");
    REQUIRE(none == NULL);
    options.listen = TEXT(",");
    refused(kiln_serve_start(engine, &options, &none, NULL, NULL), KILN_INPUT, "no place");
    options.listen = TEXT("0.0.0.0:0");
    refused(kiln_serve_start(engine, &options, &none, NULL, NULL), KILN_INPUT, "no API keys guard it");
    options.listen = TEXT("127.0.0.1:0");
    options.keys = TEXT("/nowhere/at/all");
    refused(kiln_serve_start(engine, &options, &none, NULL, NULL), KILN_INPUT, "/nowhere/at/all");

    options.keys = TEXT("");
    REQUIRE(kiln_serve_start(engine, &options, &open, &places, &length) == KILN_OK && length == strlen(places));
    int port = port_of(places);
    kiln_free(places);
    REQUIRE(status_of(port, "/v1/models", "") == 200 && status_of(port, "/none", "") == 404);
    FILE *file = fopen(keys, "w");
    REQUIRE(file && fputs("the desk: secret\n", file) > 0 && !fclose(file));
    options.keys = (struct kiln_text){keys, strlen(keys)};
    REQUIRE(kiln_serve_start(engine, &options, &guarded, &places, NULL) == KILN_OK);
    int guarded_port = port_of(places);
    kiln_free(places);
    REQUIRE(status_of(guarded_port, "/v1/models", "") == 401 && status_of(guarded_port, "/livez", "") == 200);
    REQUIRE(status_of(guarded_port, "/v1/models", "Authorization: Bearer secret\r\n") == 200);

    /* A server keeps its engine, and each ends alone. */
    REQUIRE(kiln_engine_close(engine) == KILN_OK);
    REQUIRE(kiln_serve_stop(guarded, 5) == KILN_OK);
    REQUIRE(status_of(guarded_port, "/v1/models", "") == 0 && status_of(port, "/v1/models", "") == 200);
    REQUIRE(kiln_serve_stop(open, 0) == KILN_OK && status_of(port, "/v1/models", "") == 0);
    refused(kiln_serve_stop(open, 0), KILN_INPUT, "given back");
    puts("served");
    return 0;
}
