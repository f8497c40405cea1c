//! Content codings of precompressed files: their file names, and for which files they are looked up.

use http::HeaderValue;
use weir_http1::{Name, ParsedFields};
use weir_semantics::coding::{Accepted, Coding};

/// All codings. If a client accepts several equally, the first of them is used.
pub(super) const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// The name of the compressed file beside `path`.
pub(super) fn name_beside(path: &[u8], coding: Coding) -> Vec<u8> {
    let extension = coding.extension().as_bytes();
    let mut name = Vec::with_capacity(path.len() + 1 + extension.len());
    name.extend_from_slice(path);
    name.push(b'.');
    name.extend_from_slice(extension);
    name
}

/// The coding that the client prefers among the available ones; `None`: the original.
pub(super) fn choose(headers: &ParsedFields, is_there: impl Fn(Coding) -> bool) -> Option<Coding> {
    Accepted::of(headers.all(Name::AcceptEncoding)).choose(ALL, is_there)
}

/// Whether compression is useful for this type. Images, videos, archives and web fonts usually have no compressed
/// file beside them, and each lookup takes time.
pub(super) fn is_compressible(content_type: &HeaderValue) -> bool {
    let media_type = content_type.as_bytes();
    let is = |prefix: &str| media_type.starts_with(prefix.as_bytes());
    if is("image/") {
        return is("image/svg")
            || is("image/x-icon")
            || is("image/vnd.microsoft.icon")
            || is("image/bmp");
    }
    let compressed = [
        "video/",
        "audio/",
        "font/woff",
        "application/font-woff",
        "application/zip",
        "application/gzip",
        "application/x-7z",
        "application/x-bzip",
        "application/x-xz",
        "application/x-rar",
        "application/vnd.rar",
        "application/zstd",
        "application/java-archive",
    ];
    !compressed.iter().any(|prefix| is(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_not_compressed_again() {
        let is = |media: &'static str| is_compressible(&HeaderValue::from_static(media));
        assert!(is("text/css; charset=utf-8") && is("image/svg+xml") && is("application/json"));
        assert!(!is("image/png") && !is("video/mp4") && !is("font/woff2"));
    }
}
