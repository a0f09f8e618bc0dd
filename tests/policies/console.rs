//! Policies edited in the console: reviewed first, saved with a reason, refused beside the field, taken back.

use serde_json::json;
use tollgate_policies::model::ObjectKind;
use tollgate_policies::people::Rights;
use tollgate_test_support::turns;

use crate::editor::{Editor, await_revision, edit, first_edits, routes, spend};
use crate::port::Port;
use crate::process::{Gateway, curl};

/// A browser that has signed in.
struct Visit<'a> {
    gateway: &'a Gateway,
    cookie: String,
}

impl<'a> Visit<'a> {
    fn of(gateway: &'a Gateway, editor: &Editor) -> Self {
        Self { gateway, cookie: editor.sign_in() }
    }

    fn page(&self, path: &str) -> String {
        curl(&["-g", "-H", &self.cookie, &format!("http://{}/console{path}", self.gateway.admin)])
    }

    /// Sends a form as a browser does that is on a page of the console. The whole answer, with its head.
    fn submit(&self, path: &str, fields: &[(String, String)]) -> String {
        let origin = format!("Origin: http://{}", self.gateway.admin);
        let head = ["-g", "-i", "-X", "POST", "-H", &origin, "-H", "Sec-Fetch-Site: same-origin", "-H", &self.cookie];
        let mut args = head.map(str::to_owned).to_vec();
        args.extend(fields.iter().flat_map(|(name, value)| ["--data-urlencode".to_owned(), format!("{name}={value}")]));
        args.push(format!("http://{}/console{path}", self.gateway.admin));
        curl(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// The values of the inputs of the form with this label.
fn form(page: &str, label: &str) -> Vec<(String, String)> {
    let start = format!("aria-label=\"{label}\"");
    let (_, form) = page.split_once(&start).unwrap_or_else(|| panic!("no form {label}: {page}"));
    let inputs = form.split("</form>").next().unwrap().split("<input ").skip(1);
    let attribute = |input: &str, name: &str| {
        let (_, rest) = input.split_once(&format!(" {name}=\""))?;
        Some(unescape(rest.split('"').next()?))
    };
    inputs
        .map(|input| {
            let input = format!(" {}", input.split('>').next().unwrap());
            (attribute(&input, "name").unwrap(), attribute(&input, "value").unwrap_or_default())
        })
        .collect()
}

fn unescape(text: &str) -> String {
    let pairs = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn with(mut fields: Vec<(String, String)>, changes: &[(&str, &str)]) -> Vec<(String, String)> {
    for (name, value) in changes {
        fields.retain(|(known, _)| known != name);
        fields.push(((*name).to_owned(), (*value).to_owned()));
    }
    fields
}

const FEW: &str = "/edit?application=shop&kind=strategy&name=few";

#[test]
fn a_strategy_is_reviewed_saved_with_a_reason_and_taken_back() {
    let _turn = turns::beside_others();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/policies.db", folder.path().display());
    let editor = Editor::of(&url);
    editor.commit(first_edits());
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    let visit = Visit::of(&gateway, &editor);
    await_revision(&gateway, 1);
    assert!(visit.page("/applications").contains("href=\"/console/applications/shop\""));
    let shop = visit.page("/applications/shop");
    assert!(shop.contains("1/h by") && shop.contains("ada, 20"), "{shop}");

    let edited = with(form(&visit.page(FEW), "few"), &[("limit.burst", "5")]);
    let review = visit.submit("/edit", &edited);
    assert!(review.contains("limit.burst: 5") && review.contains("limit.burst: 3"), "{review}");
    assert_eq!(gateway.metric("tollgate_policy_revision"), 1.0, "nothing has changed yet");
    let save = form(&review, "Save");
    let bare = visit.submit("/edit", &with(save.clone(), &[("reason", "")]));
    assert!(bare.starts_with("HTTP/1.1 400 "), "a reason is asked for: {bare}");
    let saved = visit.submit("/edit", &with(save, &[("reason", "more <b>")]));
    assert!(saved.contains("location: /console/revisions/2?done"), "{saved}");
    await_revision(&gateway, 2);
    assert_eq!(spend(&gateway, "/orders/1", 7), 5);
    let revision = visit.page("/revisions/2");
    assert!(revision.contains("more &#60;b&#62;") && !revision.contains("<b>"), "{revision}");

    let late = visit.submit("/edit", &edited);
    assert!(late.starts_with("HTTP/1.1 409 ") && late.contains("Somebody was faster"), "{late}");
    assert!(late.contains("href=\"/console/revisions/2\"") && late.contains("value=\"5\""), "{late}");

    let undo = with(form(&revision, "Take it back"), &[("reason", "too many")]);
    let undone = visit.submit("/revisions/2", &undo);
    assert!(undone.contains("location: /console/revisions/3?done"), "{undone}");
    assert!(visit.page("/revisions").contains("too many"));
    let deletion = visit.submit("/edit", &form(&visit.page(FEW), "Delete"));
    let deleted = visit.submit("/edit", &with(form(&deletion, "Save"), &[("reason", "gone")]));
    assert!(deleted.contains("location: /console/revisions/4?done"), "{deleted}");
}

#[test]
fn a_mistake_stands_beside_its_field_and_nothing_is_saved() {
    let _turn = turns::beside_others();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/policies.db", folder.path().display());
    let editor = Editor::of(&url);
    editor.commit(first_edits());
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    let visit = Visit::of(&gateway, &editor);
    let wrong = with(form(&visit.page(FEW), "few"), &[("limit.rate", "fast"), ("resources", "[nothing]")]);
    let refused = visit.submit("/edit", &wrong);
    assert!(refused.starts_with("HTTP/1.1 422 "), "{refused}");
    for field in ["limit.rate", "resources"] {
        let (_, beside) = refused.split_once(&format!("id=\"hint-{field}\"")).unwrap();
        assert!(beside.split("</div>").next().unwrap().contains("class=\"state bad\""), "{field}: {refused}");
    }
    assert!(refused.contains("value=\"fast\""), "what was written is kept");
    let port = Port::of(&gateway, &editor, "bob", Rights::admin());
    assert_eq!(port.get("/policies/revisions").body["revisions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_candidate_is_promoted_on_the_page_of_its_strategy() {
    let _turn = turns::beside_others();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/policies.db", folder.path().display());
    let editor = Editor::of(&url);
    editor.commit(first_edits());
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    let visit = Visit::of(&gateway, &editor);
    assert!(!visit.page(FEW).contains("aria-label=\"Candidate\""), "there is nothing to end");
    let limit = json!({"key": {"constant": "all"}, "rate": "1/h", "burst": 5});
    let mut tried = editor.body(ObjectKind::Strategy, "few");
    tried["candidate"] = json!({"limit": limit, "on": "shadow", "bounds": {"denials": "5%"}});
    editor.commit(vec![edit(ObjectKind::Strategy, "few", tried.clone())]);
    let shop = visit.page("/applications/shop");
    assert!(shop.contains("; tried out on shadow: 1/h by"), "{shop}");

    let page = visit.page(FEW);
    let review = visit.submit("/edit", &with(form(&page, "Candidate"), &[("action", "promote")]));
    assert!(review.contains("limit.burst: 5") && review.contains("limit.burst: 3"), "{review}");
    let saved = visit.submit("/edit", &with(form(&review, "Save"), &[("reason", "good")]));
    assert!(saved.contains("location: /console/revisions/3?done"), "{saved}");
    await_revision(&gateway, 3);
    assert_eq!(editor.body(ObjectKind::Strategy, "few"), json!({"limit": limit, "resources": ["all"]}));
    let late = visit.submit("/edit", &with(form(&page, "Candidate"), &[("action", "abort")]));
    assert!(late.contains("has no candidate any more"), "{late}");
}
