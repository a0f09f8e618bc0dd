"""Somebody of the team: a person with an account."""

from fleet import PASSWORD
from person import ENTER, Person, expect


class Member(Person):
    def __init__(self, *parts, name):
        super().__init__(*parts)
        self.name = name

    def sign_in(self, path=""):
        """Asks for a page as a stranger, signs in, and is led to it."""
        self.open(path)
        self.shows("nobody has signed in", "h1", "Sign in")
        self.write_name_and(PASSWORD)
        self.is_in()

    def write_name_and(self, password):
        self.fill("#name", self.name)
        self.fill("#password", password)
        self.browser.click(".sign-in .primary")

    def is_in(self):
        self.until(f"{self.name} is in", "document.querySelector('.who a')?.textContent.endsWith(args[0])", self.name)

    def sign_out(self):
        self.browser.click(".who button")
        self.shows("signed out", "h1", "Sign in")

    def cookie(self):
        """The session, as a thief would send it."""
        found = [one for one in self.browser.cookies() if one["name"] == "tollgate"]
        expect("cookies of a session", len(found), 1)
        return found[0]

    def sends(self, path, **fields):
        """The status of a form that no page has shown, with the token of one that has."""
        status = self.browser.run("""
            const page = new DOMParser().parseFromString(await (await fetch('/console/account')).text(), 'text/html');
            const fields = {...args[1], token: page.querySelector('[name=token]').value};
            return (await fetch('/console' + args[0], {method: 'POST', body: new URLSearchParams(fields)})).status;
        """, path, fields)
        self.browser.complaints()  # it says of each refusal that there was one
        return status

    def status(self, path):
        status = self.browser.run("return (await fetch('/console' + args[0])).status", path)
        self.browser.complaints()
        return status

    def reviews(self, strategy, **values):
        """Fills in the form of a strategy, and asks what it would change."""
        self.open(strategy)
        self.writes(**values)
        self.browser.click("form.card .primary")
        self.until("the review", "document.querySelector('h1').innerText.startsWith('Save ')")

    def writes(self, **values):
        for field, value in values.items():
            self.fill(f"[name$='{field}']", value)

    def saves(self, reason, revision):
        """Says why on the page of the review, and saves."""
        self.fill("#reason", reason)
        self.browser.click("form.card .primary")
        self.shows("saved", "h1", f"Revision {revision}")

    def types(self, selector, text, key=ENTER):
        """Goes to a field by Tab, which selects what it has, types something else, and ends with a key."""
        self.focus(selector)
        self.browser.press(*text, key)
