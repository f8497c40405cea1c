//! Requests one after another in one process.

use super::{booted, post, text};

const ONE: &str = "max_children = 1\n";

#[test]
fn the_application_boots_once_and_answers_many_requests() {
    let weir = booted(ONE, "", "").start();
    let pid = text(&weir, "/pid");
    for _ in 0..5 {
        assert_eq!(text(&weir, "/pid"), pid);
    }
    assert_eq!(text(&weir, "/count"), "7");
}

#[test]
fn superglobals_and_the_body_are_those_of_the_request() {
    const CODE: &str = "'all' => function () {
        echo json_encode([$_GET, $_POST, $_COOKIE, array_keys($_FILES), $_REQUEST, file_get_contents('php://input')]); },";
    let weir = booted(ONE, "", CODE).start();
    let all = |query: &str| text(&weir, &format!("/all{query}"));
    assert_eq!(all("?a=1"), r#"[{"a":"1"},[],[],[],{"a":"1"},""]"#);
    let form = "application/x-www-form-urlencoded";
    assert_eq!(
        post(&weir, "/all?a=1", form, b"b=2").expect(200).text(),
        r#"[{"a":"1"},{"b":"2"},[],[],{"a":"1","b":"2"},"b=2"]"#
    );
    assert_eq!(
        post(&weir, "/all", "text/plain", b"text")
            .expect(200)
            .text(),
        r#"[[],[],[],[],[],"text"]"#
    );
    let cookie = weir.request("GET", "/all", &[("Cookie", "c=3")], b"");
    assert_eq!(cookie.expect(200).text(), r#"[[],[],{"c":"3"},[],[],""]"#);
    assert_eq!(all(""), "[[],[],[],[],[],\"\"]");
}
