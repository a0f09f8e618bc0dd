#!/usr/bin/env python3
"""What a team makes of the console: `make browser`.

Two nodes share a database of policies and a store. Ada signs in, looks up a bucket and resets it, changes a strategy and sees
both nodes take it over; Otto is second, and is told; a candidate is tried out; Vera, who may only look, is refused; a change
is taken back; tokens come and go; a stolen cookie is of no use. Each page in light, in dark and on a phone.

    tests/browser/team.py BINARY AXE SCREENSHOTS
"""

import contextlib
import sys
import tempfile
import time
from pathlib import Path

from driver import Browser
from fleet import PASSWORD, Fleet
from member import Member
from person import ENTER, SPACE, TAB, expect, run, showing, wait

STRATEGY = "/edit?application=shop&kind=strategy&name=per-client"
BUCKET = "/limits/shop.per-client/bucket?key=shop.per-client:alan-turing"
CANDIDATE = "limit: {key: {header: x-client}, rate: 30/h, burst: 30}\non: shadow"

LONG = "the-shop-that-we-bought-in-2019"
LONG_STRATEGY = "every-client-by-header-and-route"

# With what is on them by then.
PAGES = {
    "applications": "/applications",
    "application": "/applications/shop",
    "new-application": "/edit?kind=application",
    "resource": "/edit?application=shop&kind=resource&name=checkout",
    "strategy": STRATEGY,
    "new-strategy": "/edit?application=shop&kind=strategy",
    "plan": "/edit?application=shop&kind=plan&name=gold",
    "client": "/edit?application=shop&kind=assignment&name=grace",
    "history": "/revisions",
    "revision": "/revisions/2",
    "fleet": "/nodes",
    "people": "/people",
    "person": "/people/vera",
    "account": "/account",
    "audit": "/audit?verify=true",
    "team-overview": "",
    "team-limit": "/limits/shop.per-client",
    "long-names": f"/applications/{LONG}",
    "long-strategy": f"/edit?application={LONG}&kind=strategy&name={LONG_STRATEGY}",
    "long-limit": f"/limits/{LONG}.{LONG_STRATEGY}",
    "not-there": "/applications/nobody",
}


class Team:
    """Three people at browsers of their own, and the fleet that they run."""

    def __init__(self, fleet, ada, otto, vera):
        self.fleet, self.ada, self.otto, self.vera = fleet, ada, otto, vera

    def both_let_pass(self, client, times):
        """How many of so many requests pass on the one node, and then on the other, which count together."""
        return [node.passes(client, times) for node in self.fleet.nodes]


def a_stranger_is_let_in_by_the_right_password_alone(team):
    ada, node = team.ada, team.fleet.nodes[0]
    with showing("a stranger sees a page for signing in and nothing else, and programs get 401"):
        ada.open("/limits")
        ada.shows("a stranger", "h1", "Sign in")
        expect("links to pages", ada.see("document.querySelectorAll('nav a').length"), 0)
        expect("the API", node.on_admin("/policies"), 401)
        ada.look("sign-in")
    with showing("a wrong password is refused, and a wrong name in the same words"):
        ada.write_name_and("wrong horse battery")
        ada.until("it is refused", "document.querySelector('.notice.bad')")
        said = ada.text(".notice.bad")
        ada.look("sign-in-refused")
        expect("nobody is in", ada.see("document.querySelectorAll('.who').length"), 0)
        expect("the name stands there still", ada.see("document.querySelector('#name').value"), "ada")
        ada.fill("#name", "nobody")
        ada.fill("#password", PASSWORD)
        ada.submits(".sign-in .primary")
        expect("what a wrong name is told", ada.text(".notice.bad"), said)
        ada.browser.complaints()  # of the refusals
    with showing("the right one lets in, and leads to the page that was asked for"):
        ada.write_name_and(PASSWORD)
        ada.is_in()
        ada.shows("the page", "h1", "Limits")
    with showing("the session's cookie is kept from scripts and from other sites"):
        cookie = ada.cookie()
        expect("its marks", (cookie["httpOnly"], cookie["sameSite"]), (True, "Strict"))
        expect("cookies that scripts see", ada.see("document.cookie"), "")
        ada.is_content()


def ada_looks_up_a_bucket_and_resets_it(team):
    ada, (one, other) = team.ada, team.fleet.nodes
    # So that charts have something to show.
    for _ in range(2):
        one.passes("grace", 40)
        other.ask("/search")
        time.sleep(2)
    with showing("who is denied now stands on the page of the limit"):
        expect("the burst", one.passes("alan-turing", 25), 20)
        ada.open("/limits/shop.per-client")
        ada.until("the denials appear", "document.querySelector('[data-part=denied]').innerText.includes('alan-turing')")
    with showing("a bucket is looked up by the client's name"):
        ada.fill("#part-1", "alan-turing")
        ada.browser.click(".fields .primary")
        ada.shows("the bucket", "h1", "shop.per-client:alan-turing")
        ada.shows("its level", ".level strong", "0 of 20 tokens")
        ada.look("team-bucket")
    with showing("a reset is previewed first, and then holds on both nodes"):
        ada.fill("#reset-reason", "ticket 4711")
        ada.browser.click("form[aria-label='Make it full'] button")
        ada.shows("a dry run first", "#change-title", "A reset would make the bucket full")
        expect("nothing has changed", other.passes("alan-turing", 1), 0)
        ada.browser.click(".notice .primary")
        ada.shows("it is done", "#change-title", "The bucket was made full")
        expect("requests pass", one.passes("alan-turing", 12), 12)
        # The other node has to hear of it, which takes a quarter of a second.
        wait("the other node lets one pass", lambda: other.passes("alan-turing", 1))
        expect("the rest passes on the other node", other.passes("alan-turing", 12), 7)
        ada.is_content()


def a_strategy_is_changed_and_both_nodes_take_it_over(team):
    ada, nodes = team.ada, team.fleet.nodes
    with showing("a mistake stands beside its field, which has the focus, and nothing is saved"):
        ada.open(STRATEGY)
        ada.writes(rate="fast")
        ada.browser.click("form.card .primary")
        ada.until("the mistake is beside its field", "document.querySelector(\"[id='hint-limit.rate'] .bad\")")
        expect("fields with a mistake", ada.see("[...document.querySelectorAll('[aria-invalid]')].map(one => one.name)"), ["limit.rate"])
        expect("the focus", ada.see("document.activeElement.name"), "limit.rate")
        expect("what was written", ada.see("document.activeElement.value"), "fast")
        expect("a way out", "10/s" in ada.text("[id='hint-limit.rate'] .bad"), True)
        ada.look("mistake")
        ada.browser.complaints()  # of the refused form
    with showing("the difference is shown before anything changes"):
        ada.writes(rate="12/h", burst="40")
        ada.browser.click("form.card .primary")
        ada.shows("the review", "h1", "Save the strategy per-client?")
        told = ada.see("[...document.querySelectorAll('.diff li')].map(line => [line.className, line.querySelector('code').innerText])")
        changes = [["gone", "limit.burst: 20"], ["gone", "limit.rate: 6/h"], ["added", "limit.burst: 40"], ["added", "limit.rate: 12/h"]]
        expect("the difference", sorted(told), sorted(changes))
        expect("nothing has changed", [node.revision() for node in nodes], [1, 1])
        ada.look("review")
    with showing("without a reason it is not saved"):
        ada.browser.click("form.card .primary")
        expect("the browser asks for it", ada.see("document.querySelector('#reason').validity.valueMissing"), True)
        expect("and stays", ada.text("h1"), "Save the strategy per-client?")
    with showing("both nodes take the revision over, and count by it together"):
        ada.saves("Larger baskets in December", 2)
        team.fleet.runs(2)
        expect("the limit on either node", team.both_let_pass("mary", 30), [30, 10])
    with showing("the page of nodes shows both with the revision"):
        ada.open("/nodes")
        shown = "[...document.querySelectorAll('[data-part=nodes] tbody tr')].filter(row => row.innerText.includes('revision 2')).length === 2"
        ada.until("both nodes run it", shown)
        names = "[...document.querySelectorAll('[data-part=nodes] tbody th code')].map(one => one.innerText).sort()"
        expect("their names", ada.see(names), ["gate-a", "gate-b"])
        ada.is_content()


def the_second_of_two_editors_is_told(team):
    ada, otto = team.ada, team.otto
    otto.sign_in(STRATEGY)
    with showing("who reviews what somebody else has changed meanwhile is told by whom, and keeps the own entries"):
        ada.reviews(STRATEGY, burst="50")
        ada.saves("More at once", 3)
        otto.writes(burst="45")
        otto.browser.click("form.card .primary")
        otto.until("it is said", "document.querySelector('.notice.warn')?.innerText.includes('ada has changed it in revision 3')")
        expect("the own entry", otto.see("document.querySelector(\"[id='limit.burst']\").value"), "45")
        otto.look("conflict")
        otto.browser.complaints()  # of the refused form
    with showing("and sees then what the own entries change of the newest"):
        otto.browser.click("form.card .primary")
        otto.shows("the review", "h1", "Save the strategy per-client?")
        told = otto.see("[...document.querySelectorAll('.diff code')].map(line => line.innerText).sort()")
        expect("the difference", told, ["limit.burst: 45", "limit.burst: 50"])
    with showing("who saves second is told as well, and nothing of the first is lost"):
        ada.reviews(STRATEGY, burst="60")
        ada.saves("Still more at once", 4)
        otto.fill("#reason", "Less at once")
        otto.browser.click("form.card .primary")
        otto.until("it is said", "document.querySelector('.notice.warn')?.innerText.includes('ada has changed it in revision 4')")
        otto.browser.complaints()
        team.fleet.runs(4)
        expect("the limit on either node", team.both_let_pass("katherine", 40), [40, 20])


def a_candidate_is_tried_out_and_ended_by_hand(team):
    ada, nodes = team.ada, team.fleet.nodes
    session = {"cookie": f"tollgate={ada.cookie()['value']}"}
    page = "/console/limits/shop.per-client.candidate"
    with showing("a candidate in shadow counts beside the limit, and denies nobody"):
        ada.reviews(STRATEGY, candidate=CANDIDATE)
        ada.saves("Would half of it do?", 5)
        team.fleet.runs(5)
        expect("the limit that holds", team.both_let_pass("dorothy", 40), [40, 20])
        expect("the candidate's limit", [node.on_admin(page, **session) for node in nodes], [200, 200])
        ada.open("/applications/shop")
        expect("it is said", "tried out on shadow" in ada.text(), True)
        ada.open(STRATEGY)
        ada.look("candidate")
    with showing("promoted, it is the limit of both nodes"):
        ada.browser.click("[value=promote]")
        ada.shows("the review", "h1", "Save the strategy per-client?")
        expect("it becomes the limit", "limit.burst: 30" in ada.text(), True)
        ada.look("promotion")
        ada.saves("It does", 6)
        team.fleet.runs(6)
        expect("the limit on either node", team.both_let_pass("annie", 20), [20, 10])
        expect("the candidate's limit", [node.on_admin(page, **session) for node in nodes], [404, 404])
    with showing("aborted, it is gone and the limit is what it was"):
        ada.reviews(STRATEGY, candidate=CANDIDATE.replace("burst: 30", "burst: 5"))
        ada.saves("Would less do?", 7)
        ada.open(STRATEGY)
        ada.browser.click("[value=abort]")
        ada.shows("the review", "h1", "Save the strategy per-client?")
        ada.saves("Too early", 8)
        team.fleet.runs(8)
        expect("the limit on either node", team.both_let_pass("grete", 20), [20, 10])
        expect("buttons to end it", (ada.open(STRATEGY), ada.see("document.querySelectorAll('[name=action][value=promote], [name=action][value=abort]').length"))[1], 0)
        ada.is_content()


def a_viewer_looks_and_is_refused(team):
    vera, nodes = team.vera, team.fleet.nodes
    with showing("a viewer sees the strategy, and no button or link that changes something"):
        vera.sign_in(STRATEGY)
        expect("it is shown", vera.see("document.querySelector(\"[id='limit.burst']\").value"), "30")
        for path in (STRATEGY, "/applications", "/applications/shop", "/revisions/2", BUCKET):
            vera.open(path)
            offered = vera.see("[...document.querySelectorAll('main button')].map(one => one.textContent)")
            expect(f"buttons on {path}", [one for one in offered if one != "Look up"], [])
            links = "[...document.querySelectorAll(\"main a[href*='/edit?']:not([href*='&name='])\")].map(one => one.href)"
            expect(f"links to forms for something new on {path}", vera.see(links), [])
        expect("the entries of the navigation", "Audit" in vera.text("nav") or "People" in vera.text("nav"), False)
        vera.open(STRATEGY)
        vera.look("viewer")
    with showing("pages that are not for her say which role is missing"):
        for path in ("/applications/search", "/people", "/audit", "/explain"):
            expect(f"the status of {path}", vera.status(path), 403)
        vera.open("/applications/search")
        expect("the role", "viewer" in vera.text(".notice"), True)
        vera.look("refused")
        vera.browser.complaints()
    with showing("forms that she makes up get 403 and change nothing"):
        vera.open(STRATEGY)
        strategy = {"kind": "strategy", "application": "shop", "name": "per-client", "reason": "mine"}
        expected = vera.see("document.querySelector('[name=expected]').value")
        whole = '{"limit": {"key": {"header": "x-client"}, "rate": "9000/h"}, "resources": ["all"]}'
        change = {**strategy, "step": "save", "expected": expected, "action": "write", "body": whole}
        expect("a change", vera.sends("/edit", **change), 403)
        expect("a deletion", vera.sends("/edit", **{**change, "action": "delete", "body": ""}), 403)
        expect("taking back", vera.sends("/revisions/8", reason="mine"), 403)
        expect("a reset", vera.sends("/limits/shop.per-client/bucket", step="apply", action="reset", reason="mine", **{"bucket.key": "shop.per-client:mary"}), 403)
        expect("a role", vera.sends("/people/vera", action="fleet", role="admin"), 403)
        expect("an account", vera.sends("/people", name="eve", password=PASSWORD, fleet="admin"), 403)
        expect("revisions", [node.revision() for node in nodes], [8, 8])
        vera.is_content()


def a_change_is_taken_back_from_the_history(team):
    otto = team.otto
    with showing("a change is undone from the history, on both nodes"):
        otto.reviews(STRATEGY, burst="90")
        otto.saves("It is the first of December", 9)
        team.fleet.runs(9)
        expect("the limit on either node", team.both_let_pass("joan", 60), [60, 30])
        otto.open("/revisions")
        otto.browser.click("tbody a[href$='/9']")
        otto.shows("the revision", "h1", "Revision 9")
        otto.fill("#reason", "December is over")
        otto.browser.click("form.card button")
        otto.shows("saved", "h1", "Revision 10")
        otto.look("undone")
        team.fleet.runs(10)
        expect("the limit on either node", team.both_let_pass("betty", 20), [20, 10])
    with showing("what somebody has changed since is not undone behind their back"):
        otto.open("/revisions/2")
        otto.fill("#reason", "Too large")
        otto.browser.click("form.card button")
        otto.until("it is said", "document.querySelector('main .notice.warn')?.innerText.includes('otto has changed strategy shop/per-client since')")
        otto.look("undo-conflict")
        otto.browser.complaints()
        expect("revisions", [node.revision() for node in team.fleet.nodes], [10, 10])


def every_page_in_each_mode(team):
    # A token and a disabled account, so that there is something to see.
    team.ada.open("/account")
    team.ada.fill("#label", "a label that is as long as the names that people give to things which they mean to tidy up")
    team.ada.fill("#proof", PASSWORD)
    team.ada.browser.click("form[aria-label='A new token'] button")
    team.ada.until("a token is made", "document.querySelector('#secret-title')")
    for name, path in PAGES.items():
        with showing(f"the page {name} in light, in dark and on a phone"):
            team.ada.open(path)
            team.ada.look(name)
            if name == "not-there":
                team.ada.browser.complaints()
            team.ada.is_content()


def keys_are_enough(team):
    ada = team.ada
    for name, path in PAGES.items():
        with showing(f"every control of the page {name} is reached by Tab, and shows the focus"):
            ada.open(path)
            ada.has_drawn()
            ada.reaches_everything(name)
    ada.browser.complaints()
    ada.sign_out()
    with showing("without a mouse: signed in, changed, reviewed, saved"):
        ada.open(STRATEGY)
        ada.types("#name", "ada", TAB)
        ada.browser.press(*PASSWORD, ENTER)
        ada.is_in()
        ada.types("[id='limit.burst']", "70")
        ada.shows("the review", "h1", "Save the strategy per-client?")
        ada.types("#reason", "By keys", TAB)
        ada.browser.press(SPACE)
        ada.shows("saved", "h1", "Revision 11")
        team.fleet.runs(11)
        ada.is_content()


def tokens_come_and_go(team):
    ada, node = team.ada, team.fleet.nodes[0]
    with showing("a token takes the password, is shown once, and lets programs do what it says"):
        ada.open("/account")
        ada.fill("#label", "deploys")
        ada.fill("#proof", "wrong horse battery")
        ada.browser.click("form[aria-label='A new token'] button")
        ada.until("a wrong password is refused", "document.querySelector('main .notice.bad')?.innerText.includes('password is wrong')")
        ada.browser.complaints()
        ada.fill("#label", "deploys")
        ada.fill("#proof", PASSWORD)
        ada.browser.click("form[aria-label='A new token'] button")
        ada.until("the token is shown", "document.querySelector('#secret-title')")
        token = ada.text("section[aria-labelledby=secret-title] code")
        expect("its beginning", token[:4], "tgt_")
        ada.look("token")
        bearer = {"authorization": f"Bearer {token}"}
        expect("it may look", node.on_admin("/policies", **bearer), 200)
        ada.open("/account")
        expect("it is shown again", token in ada.see("document.documentElement.outerHTML"), False)
    with showing("a token that was revoked is refused at once"):
        ada.browser.click("[aria-label='Revoke the token deploys']")
        ada.until("it is said", "document.querySelector('main .notice.good')?.innerText === 'The token was revoked.'")
        expect("it may look", node.on_admin("/policies", **bearer), 401)
        ada.is_content()


def the_audit_log_has_all_of_it(team):
    ada = team.ada
    ada.open("/audit?verify=true")
    with showing("logins, refusals, resets, tokens and revisions are in the audit log, with who and why"):
        rows, path = [], "/audit"
        while path:
            ada.open(path)
            rows += ada.see("[...document.querySelectorAll('tbody tr')].map(row => row.innerText)")
            path = ada.see("document.querySelector(\"a[href*='before=']\")?.getAttribute('href')?.replace('/console', '')")
        for words in (
            ("an unknown name", "refused"), ("ada", "sign in", "done"), ("vera", "POST /console/edit", "refused"),
            ("ada", "reset", "ticket 4711"), ("ada", "token revoke"), ("otto", "December is over"),
        ):
            expect(f"an entry with {words}", any(all(word in row for word in words) for row in rows), True)
    with showing("and the log proves that no entry was changed"):
        ada.open("/audit?verify=true")
        expect("the verdict", "are as they were written" in ada.text(".notice.good"), True)
        ada.is_content()


def a_page_that_is_left_open_asks_no_more_once_its_session_has_ended(team):
    ada = team.ada
    asked = "performance.getEntriesByType('resource').filter(one => one.name.includes('/console/data')).length"
    with showing("a page that is left open says that its session has ended, and asks no more"):
        ada.open()
        ada.until("it asks", f"{asked} > 1")
        expect("the end of the session", ada.sends("/sign-out"), 200)
        ada.until("it says so", "document.getElementById('live-state').innerText.startsWith('You are signed out')")
        count = ada.see(asked)
        time.sleep(5)  # it asks each two seconds
        expect("questions after that", ada.see(asked), count)
        ada.browser.complaints()  # of the refusal
        ada.sign_in()


def a_stolen_cookie_is_of_no_use_after_signing_out(team):
    ada, nodes = team.ada, team.fleet.nodes
    stolen = {"cookie": f"tollgate={ada.cookie()['value']}"}
    with showing("a session ends on every node when its owner signs out, for a thief of its cookie as well"):
        expect("the cookie before", [node.on_admin("/console/applications", **stolen) for node in nodes], [200, 200])
        ada.sign_out()
        expect("the cookie after", [node.on_admin("/console/applications", **stolen) for node in nodes], [303, 303])
        expect("for programs", [node.on_admin("/policies", **stolen) for node in nodes], [401, 401])
    with showing("going back shows nothing that was there before"):
        ada.see("history.back()")
        ada.until("a page for signing in", "document.readyState === 'complete' && document.querySelector('h1').innerText === 'Sign in'")
        expect("nobody is in", ada.see("document.querySelectorAll('.who').length"), 0)


STORIES = (
    a_stranger_is_let_in_by_the_right_password_alone,
    ada_looks_up_a_bucket_and_resets_it,
    a_strategy_is_changed_and_both_nodes_take_it_over,
    the_second_of_two_editors_is_told,
    a_candidate_is_tried_out_and_ended_by_hand,
    a_viewer_looks_and_is_refused,
    a_change_is_taken_back_from_the_history,
    every_page_in_each_mode,
    keys_are_enough,
    tokens_come_and_go,
    the_audit_log_has_all_of_it,
    a_page_that_is_left_open_asks_no_more_once_its_session_has_ended,
    a_stolen_cookie_is_of_no_use_after_signing_out,
)


def main():
    binary, axe, pictures = sys.argv[1], Path(sys.argv[2]).read_text(), Path(sys.argv[3])
    pictures.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        fleet = stack.enter_context(Fleet(binary, Path(folder)))
        # Vera is at the other node.
        places = {"ada": fleet.nodes[0], "otto": fleet.nodes[0], "vera": fleet.nodes[1]}
        people = [
            Member(stack.enter_context(Browser()), node, axe, pictures, name=name) for name, node in places.items()
        ]
        run(STORIES, people, Team(fleet, *people))
    print(f"pictures are in {pictures}")


if __name__ == "__main__":
    main()
