use serde_json::Value;

use super::*;

fn problem(failure: &Failure, request_id: &'static str) -> Value {
    let text = failure.row().problem(&HeaderValue::from_static(request_id));
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn a_problem_is_json_whatever_is_in_it() {
    let problem = problem(&Failure::BadRequest("\"quoted\""), "a\"b\\c");
    assert_eq!(
        problem,
        serde_json::json!({
            "type": "urn:tollgate:problem:bad-request",
            "title": "Bad Request",
            "status": 400,
            "detail": "\"quoted\"",
            "request-id": "a\"b\\c",
        })
    );
}
