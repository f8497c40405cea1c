//! A file of requests: one per line, `[METHOD] /PATH` or `[METHOD] URL`; empty lines and those that begin with `#`
//! are skipped.

use std::path::Path;

use http::{Method, Uri};

use super::{target::Url, work::Shot};

/// Reads such a file. All requests are for the host of `base`; those without a method get `usual`.
///
/// # Errors
/// The line, what is wrong with it, and what to write instead.
pub fn read(file: &Path, text: &str, base: &Url, usual: &Method) -> Result<Vec<Shot>, String> {
    let mut shots = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let shot = shot(line, base, usual)
            .map_err(|wrong| format!("{}:{}: {wrong}", file.display(), index + 1))?;
        shots.push(shot);
        if shots.len() > MOST {
            return Err(format!("{}: more than {MOST} lines", file.display()));
        }
    }
    match shots.is_empty() {
        true => Err(format!("{}: the file has no URL", file.display())),
        false => Ok(shots),
    }
}

fn shot(line: &str, base: &Url, usual: &Method) -> Result<Shot, String> {
    let mut words = line.split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next());
    if words.next().is_some() {
        return Err("write METHOD and URL, or only the URL".into());
    }
    let (method, place) = match second {
        None => (usual.clone(), first),
        Some(place) => {
            let method = first
                .parse()
                .map_err(|_| format!("{first:?} is not an HTTP method"))?;
            (method, place)
        }
    };
    let uri = match place.starts_with('/') {
        true => place
            .parse::<Uri>()
            .map_err(|error| format!("{place}: not a valid path: {error}"))?,
        false => {
            let url = Url::read(place, None)?;
            if url.authority != base.authority {
                return Err(format!(
                    "{place} has another host than {}; test one host at a time",
                    base.authority
                ));
            }
            Uri::from(url.path)
        }
    };
    Ok(Shot { method, uri })
}

/// Maximum number of different requests.
const MOST: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let base = Url::read("http://127.0.0.1:81/", None).unwrap();
        let shots = super::read(Path::new("urls"), text, &base, &Method::GET)?;
        let pair = |shot: &Shot| (shot.method.to_string(), shot.uri.to_string());
        Ok(shots.iter().map(pair).collect())
    }

    #[test]
    fn lines_are_paths_or_urls() {
        let text = "# the shop\n/a?b=c\n\n  POST /d \nhttp://127.0.0.1:81/e\n";
        let expected = [("GET", "/a?b=c"), ("POST", "/d"), ("GET", "/e")];
        let expected = expected.map(|(method, uri)| (method.to_owned(), uri.to_owned()));
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        for (text, words) in [
            ("/a\nhttp://192.0.2.1/b", ["urls:2", "another host"]),
            ("/a b c", ["urls:1", "METHOD"]),
            ("G(T /a", ["urls:1", "not an HTTP method"]),
            ("https://127.0.0.1:81/", ["urls:1", "https"]),
            ("# nothing\n", ["urls", "no URL"]),
        ] {
            let wrong = read(text).unwrap_err();
            for word in words {
                assert!(wrong.contains(word), "{text}: {wrong}");
            }
        }
    }
}
