//! Tokens that forms of the console carry: they tell a form of this console from one that another
//! page has made up.
//!
//! Guarantees that only this process issues them, that they are good for an hour and in one
//! session, and each for one change: to send a form twice changes nothing the second time.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use tollgate_admin::problem_details::ProblemDetails;
use tollgate_limiter::clock;

/// How long a token is good.
const LIFETIME_SECS: u64 = 3_600;

/// Tokens that one account, and all, may use within that time: each is remembered for so long.
/// Changes are made by hand.
const MOST_USED_OF_ACCOUNT: usize = 4_096;
const MOST_USED: usize = 65_536;

/// Tokens that each account may use though others have used all of those.
const FEW_USED: usize = 256;

/// No form's token begins so.
const PSEUDONYM: &[u8] = b"pseudonym\n";

type Nonce = [u8; 16];

/// Makes tokens and checks them.
pub struct FormTokens {
    secret: hmac::Key,
    random: SystemRandom,
    used: Mutex<UsedTokens>,
}

/// A token that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormToken {
    nonce: Nonce,
    account: AccountDigest,
}

/// Tells accounts apart.
type AccountDigest = [u8; 16];

/// The tokens that have been used while they may be good.
#[derive(Default)]
struct UsedTokens {
    /// In the order of their use, in seconds.
    in_order: VecDeque<(u64, FormToken)>,
    nonces: HashSet<Nonce>,
    of_account: HashMap<AccountDigest, usize>,
}

impl FormTokens {
    /// # Errors
    /// When the system has no random numbers.
    pub fn new() -> Result<Self, ring::error::Unspecified> {
        let random = SystemRandom::new();
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &random)?;
        Ok(Self {
            secret,
            random,
            used: Mutex::default(),
        })
    }

    /// A token for one form of a session. Empty without random numbers, and then no form is taken.
    pub fn issue(&self, session: &str) -> String {
        let mut nonce = Nonce::default();
        if self.random.fill(&mut nonce).is_err() {
            return String::new();
        }
        let text = format!("{:x}.{:032x}", now_secs(), u128::from_be_bytes(nonce));
        let proof = hmac::sign(&self.secret, signed(&text, session).as_bytes());
        let proof: String = proof
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{text}.{proof}")
    }

    /// Checks that this process has issued `token` within the last hour, to this session of an
    /// `account`.
    ///
    /// # Errors
    /// When it has not.
    pub fn check(
        &self,
        token: &str,
        session: &str,
        account: &str,
    ) -> Result<FormToken, ProblemDetails> {
        self.read(token, session, account, now_secs()).ok_or_else(|| {
            ProblemDetails::cross_site("the form does not come from this console, or from before it started, or is old")
                .hint("open the page again, and fill in the form anew")
        })
    }

    /// Uses up a token: for the one change that it is good for.
    ///
    /// # Errors
    /// When it was used before, or its account has used too many.
    pub fn spend(&self, token: FormToken) -> Result<(), ProblemDetails> {
        self.used.lock().add(token, now_secs())
    }

    /// Stands for a key that the visitor may not see, as long as this process runs. Unlike a plain
    /// hash, it does not tell the key to somebody who tries all that it may be.
    pub fn pseudonym(&self, key: &[u8]) -> String {
        let tag = hmac::sign(&self.secret, &[PSEUDONYM, key].concat());
        tag.as_ref()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    fn digest(&self, account: &str) -> AccountDigest {
        let tag = hmac::sign(&self.secret, account.as_bytes());
        let mut digest = AccountDigest::default();
        for (to, from) in digest.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        digest
    }

    fn read(&self, token: &str, session: &str, account: &str, now_secs: u64) -> Option<FormToken> {
        let (text, proof) = token.rsplit_once('.')?;
        let proof: Option<Vec<u8>> = proof
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        hmac::verify(&self.secret, signed(text, session).as_bytes(), &proof?).ok()?;
        let (issued, nonce) = text.split_once('.')?;
        let issued = u64::from_str_radix(issued, 16).ok()?;
        let nonce = u128::from_str_radix(nonce, 16).ok()?;
        let token = FormToken {
            nonce: nonce.to_be_bytes(),
            account: self.digest(account),
        };
        if now_secs.saturating_sub(issued) < LIFETIME_SECS {
            Some(token)
        } else {
            None
        }
    }
}

impl UsedTokens {
    fn add(&mut self, token: FormToken, now_secs: u64) -> Result<(), ProblemDetails> {
        self.forget(now_secs);
        if self.nonces.contains(&token.nonce) {
            return Err(
                ProblemDetails::bad_request("this form has been sent before")
                    .hint("look whether its change was made. To make another, open the page again"),
            );
        }
        let of_account = self.of_account.entry(token.account).or_default();
        // An account that fills the table keeps out no other.
        let most = if self.in_order.len() < MOST_USED {
            MOST_USED_OF_ACCOUNT
        } else {
            FEW_USED
        };
        if *of_account >= most {
            return Err(ProblemDetails::too_many_forms());
        }
        *of_account += 1;
        self.nonces.insert(token.nonce);
        self.in_order.push_back((now_secs, token));
        Ok(())
    }

    /// Forgets the tokens that are good no more.
    fn forget(&mut self, now_secs: u64) {
        while let Some(&(used, FormToken { nonce, account })) = self.in_order.front()
            && now_secs.saturating_sub(used) > LIFETIME_SECS
        {
            self.in_order.pop_front();
            self.nonces.remove(&nonce);
            if let Some(count) = self.of_account.get_mut(&account) {
                *count -= 1;
            }
        }
        self.of_account.retain(|_, count| *count > 0);
    }
}

/// A token has no line break, so it cannot be read as one of another session.
fn signed(token: &str, session: &str) -> String {
    format!("{token}\n{session}")
}

fn now_secs() -> u64 {
    clock::monotonic_micros() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pseudonym_is_of_one_key_in_one_process() {
        let tokens = FormTokens::new().unwrap();
        let pseudonym = tokens.pseudonym(b"10.0.0.1");
        assert_eq!(
            (pseudonym.len(), &tokens.pseudonym(b"10.0.0.1")),
            (16, &pseudonym)
        );
        assert_ne!(tokens.pseudonym(b"10.0.0.2"), pseudonym);
        assert_ne!(FormTokens::new().unwrap().pseudonym(b"10.0.0.1"), pseudonym);
    }

    #[test]
    fn a_token_is_good_for_an_hour_and_for_one_change() {
        let tokens = FormTokens::new().unwrap();
        let token = tokens.issue("s");
        let checked = tokens.check(&token, "s", "ada").unwrap();
        assert_eq!(
            tokens.read(&token, "s", "ada", now_secs() + LIFETIME_SECS - 10),
            Some(checked)
        );
        assert_eq!(
            tokens.read(&token, "s", "ada", now_secs() + LIFETIME_SECS + 1),
            None
        );
        tokens.spend(checked).unwrap();
        tokens.spend(checked).unwrap_err();
        tokens
            .spend(tokens.check(&tokens.issue("s"), "s", "ada").unwrap())
            .unwrap();
    }

    /// A token of an account.
    fn token(tokens: &FormTokens, account: &str) -> FormToken {
        tokens.check(&tokens.issue("s"), "s", account).unwrap()
    }

    #[test]
    fn a_token_is_remembered_for_as_long_as_it_is_good_however_many_others_there_are() {
        let tokens = FormTokens::new().unwrap();
        let first = token(&tokens, "ada");
        let mut used = UsedTokens::default();
        used.add(first, 0).unwrap();
        (0..MOST_USED_OF_ACCOUNT).for_each(|_| used.add(token(&tokens, "eve"), 1).unwrap());
        assert_eq!(used.add(token(&tokens, "eve"), 1).unwrap_err().status, 429);
        assert_eq!(used.add(first, LIFETIME_SECS).unwrap_err().status, 400);
        used.add(token(&tokens, "ada"), 2).unwrap();
        used.add(token(&tokens, "eve"), LIFETIME_SECS + 2).unwrap();
        assert_eq!(
            (
                used.in_order.len(),
                used.nonces.len(),
                used.of_account.len()
            ),
            (2, 2, 2)
        );
    }

    #[test]
    fn accounts_that_use_up_all_tokens_keep_out_nobody_else() {
        let tokens = FormTokens::new().unwrap();
        let mut used = UsedTokens::default();
        for account in 0..MOST_USED / MOST_USED_OF_ACCOUNT {
            let name = format!("eve{account}");
            (0..MOST_USED_OF_ACCOUNT).for_each(|_| used.add(token(&tokens, &name), 0).unwrap());
        }
        (0..FEW_USED).for_each(|_| used.add(token(&tokens, "ada"), 1).unwrap());
        assert_eq!(used.add(token(&tokens, "ada"), 1).unwrap_err().status, 429);
        assert_eq!(used.in_order.len(), MOST_USED + FEW_USED);
    }

    #[test]
    fn a_token_of_another_process_or_one_that_was_changed_is_refused() {
        let tokens = FormTokens::new().unwrap();
        let token = tokens.issue("s");
        FormTokens::new()
            .unwrap()
            .check(&token, "s", "ada")
            .unwrap_err();
        tokens.check(&token, "", "ada").unwrap_err();
        tokens.check(&token, "t", "ada").unwrap_err();
        let (first, rest) = token.split_at(1);
        let another = if first == "0" { "1" } else { "0" };
        for changed in [
            format!("{another}{rest}"),
            token[..token.len() - 2].to_owned(),
            String::new(),
            "a.b.c".into(),
        ] {
            tokens.check(&changed, "s", "ada").unwrap_err();
        }
    }
}
