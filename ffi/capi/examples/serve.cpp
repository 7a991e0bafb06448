// Opens an engine to other programs until a line comes from standard input: c++ serve.cpp -lkiln && ./a.out 127.0.0.1:0
#include <cstdio>
#include <kiln.h>
#include <stdexcept>
#include <string>

namespace {

void check(int code) {
    if (code == KILN_OK) return;
    kiln_error error{};
    error.size = sizeof error;
    kiln_last_error(&error);
    throw std::runtime_error(std::string(error.message.data, error.message.length));
}

} // namespace

int main(int argc, char **argv) try {
    kiln_engine *engine = nullptr;
    check(kiln_engine_open(nullptr, &engine));
    const std::string listen = argc > 1 ? argv[1] : "";
    kiln_serve_options options{};
    options.size = sizeof options;
    options.listen = {listen.data(), listen.size()};
    kiln_server *server = nullptr;
    char *places = nullptr;
    check(kiln_serve_start(engine, &options, &server, &places, nullptr));
    std::printf("%s\n", places);
    std::fflush(stdout);
    kiln_free(places);
    std::getchar();
    check(kiln_serve_stop(server, 5));
    check(kiln_engine_close(engine));
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
