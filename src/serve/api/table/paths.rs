//! Paths of the published interfaces that the server does not implement.

/// Paths that are not implemented, with the alternative.
#[derive(Debug)]
pub(in crate::serve::api) struct AbsentPaths {
    /// Each with all paths below it. A final `/ID` stands for any segment.
    pub paths: &'static [&'static str],
    pub remedy: &'static str,
}

/// All of them.
pub(in crate::serve::api) const ABSENT: [AbsentPaths; 4] = [
    AbsentPaths {
        paths: &[
            "/v1/chat/completions/ID",
            "/v1/responses/ID",
            "/v1/conversations",
            "/v1/files",
            "/v1/batches",
            "/v1/messages/batches",
        ],
        remedy: "nothing is stored; send the whole conversation, and `kiln batch` makes many replies",
    },
    AbsentPaths {
        paths: &["/v1/audio", "/v1/images", "/v1/moderations", "/v1/fine_tuning", "/v1/vector_stores"],
        remedy: "the model reads and makes text",
    },
    AbsentPaths {
        paths: &["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs"],
        remedy: "the server has the model that it was started with; `kiln pull` fetches others",
    },
    AbsentPaths {
        paths: &["/completion", "/infill", "/embedding", "/rerank", "/apply-template", "/lora-adapters"],
        remedy: "llama.cpp's own; `/v1/completions` and `/tokenize` are the nearest",
    },
];

impl AbsentPaths {
    /// Whether a path is one of them.
    pub fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|absent| {
            let (start, needs_more) = absent.strip_suffix("/ID").map_or((*absent, false), |start| (start, true));
            match path.strip_prefix(start) {
                Some("") => !needs_more,
                Some(rest) => rest.starts_with('/'),
                None => false,
            }
        })
    }
}
