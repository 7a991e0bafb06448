/* What the C tests share: a check that says what is not so and ends with 1, errors in words, and the built-in model. */
#ifndef COMMON_H
#define COMMON_H
#include <kiln.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT(literal) ((struct kiln_text){literal, sizeof literal - 1})
#define REQUIRE(what)                                                                                                  \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what, last());                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char said[4096];

static const char *last(void) {
    struct kiln_error error = {.size = sizeof error};
    if (kiln_last_error(&error) != KILN_OK) return "no error to read";
    snprintf(said, sizeof said, "%d: %.*s; %.*s", error.code, (int)error.message.length, error.message.data,
             (int)error.remedy.length, error.remedy.data);
    return said;
}

/* The call was refused, with words that hold `word`. */
static inline void refused(int code, int expected, const char *word) {
    if (code != expected || !strstr(last(), word)) {
        fprintf(stderr, "%d and %s, where %d with %s was due\n", code, last(), expected, word);
        exit(1);
    }
}

struct heard {
    char text[4096];
    size_t length;
    int pieces, stop_after;
};

static inline int hear(void *user, struct kiln_text piece) {
    struct heard *heard = user;
    if (heard->length + piece.length < sizeof heard->text) {
        memcpy(heard->text + heard->length, piece.data, piece.length);
        heard->length += piece.length;
        heard->text[heard->length] = 0;
    }
    return ++heard->pieces == heard->stop_after;
}

static inline struct kiln_engine *open_demo(unsigned context) {
    struct kiln_engine_options options = {.size = sizeof options, .device = TEXT("cpu"), .context = context, .threads = 2};
    struct kiln_engine *engine = NULL;
    REQUIRE(kiln_engine_open(&options, &engine) == KILN_OK && engine);
    return engine;
}

#define ASK "{\"messages\":[{\"role\":\"user\",\"content\":\"How much is the museum for 2 adults?\"}],\"temperature\":0"

static inline long resident_kb(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

#endif
