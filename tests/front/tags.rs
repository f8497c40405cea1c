//! The tags of scripts whose answers weir compresses.

use crate::compression::{ask, page, scripted};

/// WordPress compares with weak tags of its own, others with strong ones, all of them byte by byte.
#[test]
fn scripts_get_the_tags_that_they_have_set() {
    let (weir, _responder) = scripted("", |request, answer| {
        let conditions = ["NONE_MATCH", "MATCH", "RANGE"];
        let [none, some, range] =
            conditions.map(|name| request.param(&format!("HTTP_IF_{name}")).to_owned());
        let tag = match request.param("QUERY_STRING") {
            "weak" => "W/\"abc\"",
            _ => "\"abc\"",
        };
        match none.split(", ").any(|other| other == tag) {
            true => answer.stdout(format!("Status: 304 Not Modified\r\nETag: {tag}\r\n\r\n")),
            false => {
                let part = request.param("HTTP_RANGE");
                answer.stdout(format!("Content-Type: text/html\r\nETag: {tag}\r\n"));
                answer.stdout(format!("X-Got: {none}|{some}|{range}|{part}\r\n\r\n"));
                answer.stdout(page(3000));
            }
        }
        answer.end();
    });
    for (path, coding, tag) in [
        ("/run.php", "zstd", "W/\"abc-weir-zstd\""),
        ("/run.php", "br", "W/\"abc-weir-br\""),
        ("/run.php", "gzip", "W/\"abc-weir-gzip\""),
        ("/run.php", "identity", "\"abc\""),
        ("/run.php?weak", "zstd", "W/\"abc\""),
        ("/run.php?weak", "identity", "W/\"abc\""),
    ] {
        let accept = ("Accept-Encoding", coding);
        let response = ask(&weir, path, &[accept]).expect(200);
        assert_eq!(response.header("etag"), Some(tag), "{path} {coding}");
        for sent in [tag.to_owned(), format!("\"x\", {tag}, W/\"y\"")] {
            let response = ask(&weir, path, &[accept, ("If-None-Match", &sent)]).expect(304);
            assert_eq!(response.header("etag"), Some(tag), "{path} {coding}");
            assert_eq!(response.header("vary"), Some("Accept-Encoding"));
        }
    }
    let marked = "W/\"a\", W/\"b-weir-gzip\", \"c\", \"d-gzip\"";
    for (fields, got) in [
        (
            vec![("If-Match", marked), ("If-None-Match", "*")],
            "*|W/\"a\", \"b\", \"c\", \"d-gzip\"||",
        ),
        (
            vec![("If-Range", "\"abc\""), ("Range", "bytes=1-2")],
            "||\"abc\"|bytes=1-2",
        ),
        // A client must not get a part of a file that differs from the part that it has.
        (
            vec![("If-Range", "W/\"abc-weir-br\""), ("Range", "bytes=1-2")],
            "||\"abc\"|",
        ),
    ] {
        let response = ask(&weir, "/run.php", &fields).expect(200);
        assert_eq!(response.header("x-got"), Some(got), "{fields:?}");
    }
}
