// Asks for an answer that is a JSON document of a schema: c++ schema.cpp -lkiln && ./a.out
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

kiln_text text(const std::string &of) { return {of.data(), of.size()}; }

} // namespace

int main() try {
    kiln_engine_options options{};
    options.size = sizeof options;
    const std::string device = "cpu";
    options.device = text(device);
    kiln_engine *engine = nullptr;
    check(kiln_engine_open(&options, &engine));
    kiln_session *session = nullptr;
    check(kiln_session_new(engine, &session));
    const std::string request = R"({
        "messages": [{"role": "user", "content": "How much is the museum for 2 adults?"}],
        "temperature": 0,
        "max_tokens": 64,
        "response_format": {"type": "json_schema", "json_schema": {"name": "price", "schema": {
            "type": "object", "properties": {"euros": {"type": "integer", "minimum": 0, "maximum": 999}},
            "required": ["euros"], "additionalProperties": false}}}
    })";
    std::string answer;
    auto hear = [](void *user, kiln_text piece) {
        static_cast<std::string *>(user)->append(piece.data, piece.length);
        return 0;
    };
    check(kiln_generate(session, text(request), hear, &answer, nullptr, nullptr));
    std::printf("%s\n", answer.c_str());
    check(kiln_session_free(session));
    check(kiln_engine_close(engine));
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
