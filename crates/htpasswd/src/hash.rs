//! The kinds of hashes in such files, and how a password is compared with each.
//!
//! | hash | made by | |
//! |---|---|---|
//! | `$2y$`, `$2b$`, `$2a$` | `htpasswd -B` | bcrypt. Of a password, the first 72 bytes count |
//! | `$argon2id$`, `$argon2i$` | `argon2 SALT -e`, PHP's `password_hash()` | in the PHC format |
//! | `$5$`, `$6$` | `htpasswd -2`, `htpasswd -5`, `openssl passwd -6` | SHA-crypt |
//! | `$apr1$`, `$1$` | `htpasswd -m`, `openssl passwd -apr1` | MD5-crypt, Apache's variant and the original |
//! | `{SHA}`, `{SSHA}` | `htpasswd -s` | SHA-1, without and with a salt. Fast to guess |
//!
//! Plain text and crypt(3) by DES are refused. Each hash has a greatest cost, so that a file cannot make one password take
//! minutes.

use argon2::{Argon2, PasswordVerifier, password_hash::phc::PasswordHash};
use base64::{Engine, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};
use sha_crypt::ShaCrypt;
use sha1::Sha1;
use subtle::ConstantTimeEq;

/// A hash that passwords can be compared with.
#[derive(Debug)]
pub(crate) enum Hash {
    Bcrypt(Box<str>),
    Argon2(Box<str>),
    ShaCrypt(Box<str>),
    Md5 {
        /// `$apr1$` or `$1$`
        magic: &'static str,
        salt: Box<[u8]>,
        hash: Box<[u8]>,
    },
    Sha1 {
        hash: [u8; 20],
        salt: Box<[u8]>,
    },
}

impl Hash {
    /// Reads a hash.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(hash: &[u8]) -> Result<Hash, &'static str> {
        let text = std::str::from_utf8(hash).map_err(|_| "the hash is not text")?;
        let begins = |kinds: &[&str]| kinds.iter().any(|kind| text.starts_with(kind));
        match text {
            _ if begins(&["$2y$", "$2b$", "$2a$"]) => bcrypt(text),
            _ if begins(&["$argon2id$", "$argon2i$"]) => argon2(text),
            _ if begins(&["$5$", "$6$"]) => sha_crypt(text),
            _ if begins(&["$apr1$"]) => md5("$apr1$", text),
            _ if begins(&["$1$"]) => md5("$1$", text),
            _ if begins(&["{SHA}", "{SSHA}"]) => sha1(text),
            _ if begins(&["$2x$"]) => Err(
                "$2x$ is the variant of bcrypt with a known error; write the password again with htpasswd -B",
            ),
            _ if begins(&["$argon2"]) => {
                Err("argon2d does not protect passwords well; use argon2id, or htpasswd -B")
            }
            _ if begins(&["$y$", "$gy$", "$7$"]) => Err(
                "yescrypt and scrypt are not supported; write the password again with htpasswd -B",
            ),
            _ if begins(&["$"]) => {
                Err("the kind of this hash is not known; write the password again with htpasswd -B")
            }
            _ if text.len() == 13 && text.bytes().all(|byte| DIGITS.contains(&byte)) => {
                Err("crypt by DES is not safe; write the password again with htpasswd -B")
            }
            _ => Err("a password in plain text is not accepted; write it again with htpasswd -B"),
        }
    }

    /// Whether it is the hash of this password. Takes as long as the hash was made to take.
    pub(crate) fn is_of(&self, password: &[u8]) -> bool {
        match self {
            Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Hash::Argon2(hash) => PasswordHash::new(hash)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
            Hash::ShaCrypt(hash) => ShaCrypt::default()
                .verify_password(password, &**hash)
                .is_ok(),
            Hash::Md5 { magic, salt, hash } => md5_crypt(password, magic, salt).ct_eq(hash).into(),
            Hash::Sha1 { hash, salt } => {
                let sum = Sha1::new()
                    .chain_update(password)
                    .chain_update(salt)
                    .finalize();
                sum.as_slice().ct_eq(hash).into()
            }
        }
    }
}

fn bcrypt(text: &str) -> Result<Hash, &'static str> {
    let parts: Result<bcrypt::HashParts, _> = text.parse();
    let parts = parts
        .map_err(|_| "the bcrypt hash is damaged; write the password again with htpasswd -B")?;
    match parts.get_cost() {
        4..=MOST_COST => Ok(Hash::Bcrypt(text.into())),
        _ => Err(
            "the cost of the bcrypt hash must be 4 to 17; write the password again with htpasswd -B -C 10",
        ),
    }
}

fn argon2(text: &str) -> Result<Hash, &'static str> {
    let damaged = "the argon2 hash is damaged; write it again";
    let hash = PasswordHash::new(text).map_err(|_| damaged)?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(damaged);
    }
    let params = argon2::Params::try_from(&hash).map_err(|_| damaged)?;
    match params.m_cost() <= MOST_MEMORY && params.t_cost() <= MOST_TIME {
        true => Ok(Hash::Argon2(text.into())),
        false => {
            Err("the argon2 hash needs more than 256 MB of memory or 32 passes; make it with less")
        }
    }
}

fn sha_crypt(text: &str) -> Result<Hash, &'static str> {
    let damaged = "the SHA-crypt hash is damaged; write the password again with htpasswd -B";
    let (length, rest) = match text.strip_prefix("$5$") {
        Some(rest) => (43, rest),
        None => (86, text.strip_prefix("$6$").unwrap_or_default()),
    };
    let rest = match rest.strip_prefix("rounds=") {
        None => rest,
        Some(rest) => {
            let (rounds, rest) = rest.split_once('$').ok_or(damaged)?;
            let rounds: u32 = rounds.parse().map_err(|_| damaged)?;
            if !(1000..=MOST_ROUNDS).contains(&rounds) {
                return Err(
                    "the rounds of the SHA-crypt hash must be 1000 to 5000000; make it with others",
                );
            }
            rest
        }
    };
    let is_digit = |byte: u8| DIGITS.contains(&byte);
    match rest.split_once('$') {
        Some((salt, hash))
            if (1..=16).contains(&salt.len())
                && hash.len() == length
                && hash.bytes().all(is_digit) =>
        {
            Ok(Hash::ShaCrypt(text.into()))
        }
        _ => Err(damaged),
    }
}

fn md5(magic: &'static str, text: &str) -> Result<Hash, &'static str> {
    let rest = text.strip_prefix(magic).unwrap_or_default();
    match rest.split_once('$') {
        Some((salt, hash)) if salt.len() <= 8 && hash.len() == 22 => Ok(Hash::Md5 {
            magic,
            salt: salt.as_bytes().into(),
            hash: hash.as_bytes().into(),
        }),
        _ => Err("the MD5-crypt hash is damaged; write the password again with htpasswd -B"),
    }
}

fn sha1(text: &str) -> Result<Hash, &'static str> {
    let damaged = "the SHA-1 hash is damaged; write the password again with htpasswd -B";
    let (is_salted, sum) = match text.strip_prefix("{SSHA}") {
        Some(sum) => (true, sum),
        None => (false, text.strip_prefix("{SHA}").unwrap_or_default()),
    };
    let sum = STANDARD.decode(sum).map_err(|_| damaged)?;
    let (hash, salt) = sum.split_first_chunk::<20>().ok_or(damaged)?;
    match salt.is_empty() {
        is_empty if is_empty != is_salted => Ok(Hash::Sha1 {
            hash: *hash,
            salt: salt.into(),
        }),
        _ => Err(damaged),
    }
}

/// The crypt(3) of FreeBSD that uses MD5, and Apache's variant, which differs in `magic`.
fn md5_crypt(password: &[u8], magic: &str, salt: &[u8]) -> [u8; 22] {
    let inner = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut outer = Md5::new()
        .chain_update(password)
        .chain_update(magic)
        .chain_update(salt);
    for begin in (0..password.len()).step_by(16) {
        outer.update(&inner[..(password.len() - begin).min(16)]);
    }
    let mut bits = password.len();
    while bits > 0 {
        outer.update(match bits & 1 {
            1 => &[0][..],
            _ => &password[..1],
        });
        bits >>= 1;
    }
    let mut sum = outer.finalize();
    for round in 0..1000 {
        let mut next = Md5::new();
        match round % 2 {
            1 => next.update(password),
            _ => next.update(sum),
        }
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        match round % 2 {
            1 => next.update(sum),
            _ => next.update(password),
        }
        sum = next.finalize();
    }
    let byte = |at: usize| u32::from(sum[at]);
    let mut text = [0; 22];
    let groups = [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)];
    let values = groups.map(|(high, middle, low)| byte(high) << 16 | byte(middle) << 8 | byte(low));
    for (digits, value) in text.chunks_mut(4).zip(values.into_iter().chain([byte(11)])) {
        for (digit, shift) in digits.iter_mut().zip([0, 6, 12, 18]) {
            *digit = DIGITS[(value >> shift & 0x3f) as usize];
        }
    }
    text
}

/// The digits of crypt(3).
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The greatest cost of bcrypt, which is also htpasswd's: some seconds of one processor.
const MOST_COST: u32 = 17;
/// The most memory for argon2, KB.
const MOST_MEMORY: u32 = 256 << 10;
/// The most passes of argon2 through its memory.
const MOST_TIME: u32 = 32;
/// The most rounds of SHA-crypt: some seconds.
const MOST_ROUNDS: u32 = 5_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "a pass phrase with blanks, longer than three blocks of MD5";

    /// Passwords, and what htpasswd, openssl and PHP make of them.
    const MADE: &[(&str, &str)] = &[
        (
            "weir",
            "$2y$04$kPds0rnA4L1w6JxV7/l.i./6VNrnfx8C/apAax14l19EZDwQB23n2",
        ),
        ("weir", "$apr1$/IxTleVf$8sGr6DY5SAbPfaWmXlXHY0"),
        ("weir", "{SHA}czWeUrlZz4X3UVipv3hQHuLJ9Sk="),
        ("weir", "$1$2jAUgIZe$XL5gKPvPs6Quygc0DZoGz."),
        ("weir", "$apr1$ab$WEMzV2sDaI8cXxhEQ6JWM."),
        (
            "weir",
            "$5$short$tA2ObhacacF59CtrmLga1Hou6RmMty0gmhioPGPIw6/",
        ),
        (
            "weir",
            "$6$8Dl/jB7t/lpa4TI7$qa5dxM84Elazw9ia3Mm3HlHo7xBYhGD1XMoTkJkDvdssa2hFN1ujUeI1RZiSXgr4X.1gEEWZlo/R0kZ7Abd87.",
        ),
        (
            "zwölf",
            "$2y$04$iBmtNTcF7odnWAI5/zyLdOegNSCR5to8/E7S8/YcNXIz.HHozHu9G",
        ),
        ("zwölf", "$apr1$gfoKuRhK$drnUd8di3NpaSn.Hg7cZ.."),
        ("zwölf", "{SHA}hz7wL7tnZnZ58IKrf1Iv1KOfeGg="),
        ("zwölf", "$1$lN/wb0/e$O0Yl1aVbTa48CyteGQbzj."),
        ("zwölf", "$apr1$ab$3r.POzNChgfjZ9GsNJoXo/"),
        (
            "zwölf",
            "$5$short$92yNL1nksaCmkHj41.vEURSLEJu9wmXhCNR9IQSUNT5",
        ),
        (
            "zwölf",
            "$6$O6thIuj3Ey9nZVjp$zp7K0JUKTUUVhtu5pcqgxfYo1MNage6f8R8EsZi2nbH1juIccM/iLC7lzMxu7EXvqdbSxTCkIRX5PnyB3kRZY.",
        ),
        (
            LONG,
            "$2y$04$iifarOBPgkjQy8yoMXm.qOzJXHWOHnH8ecMhWerD238wEivp4qmc2",
        ),
        (LONG, "$apr1$gFBZ/4UV$ycSTuvP8lnAunnBKMMWEd/"),
        (LONG, "{SHA}Q6TjixaxWTop/Rx806z7YynVx5Y="),
        (LONG, "$1$xzIVQUrV$fI3p.D171X0CUdCdOUMqe/"),
        (LONG, "$apr1$ab$eteQQVJVfZ1/l7lKQNqEM/"),
        (LONG, "$5$short$RUJNO1f..0vz99FnN6pmHJw2l8jn7/TQvccjQE1/jq8"),
        (
            LONG,
            "$6$L3IQOPwB1/Evf/Pe$F9oPOPk.YEt78a04dzKNZ8mG88ciEnSwlcp75Re3Zn8KVBQatZqtwXlPfTjm9rAQAcU0kZTR7EFvByrdBV1IH/",
        ),
        (
            "weir",
            "$5$rounds=1000$glpbvSLNFTgMoXs5$pX5G4/GrG3scdsQV7exKI.ZAFN4uPGrv0tbj6At7PC7",
        ),
        (
            "weir",
            "$6$rounds=1500$t3zb5yDX6TtcWGXz$xq9THRhIJsuzh.P7PZViPDBZ42v319cFj/nszjiNGM.4fDE6WkvvEvv4jAA8KchxKkeszpnwRmKj0wbedZUuj.",
        ),
        (
            "weir",
            "$argon2id$v=19$m=64,t=2,p=1$ZXI3L0NXZzBQV0JOZnZMdA$Fuk5Ds1Z9am0TkcJMi0ydTti5hCnbf6fU3o+JUGHN4A",
        ),
        (
            "weir",
            "$argon2i$v=19$m=64,t=3,p=2$bkJxWXpsY3c2YmtiNTVETg$x+ujdbd43DkET4G4H022UB/+k2Cwf08UJ20Yya/Ix3E",
        ),
        (
            "weir",
            "$2y$04$y.VB3XMQYCg6rljbrBL1QOF3pfmDQln/8D5PclZk/cS0WTrJ5opxW",
        ),
        (
            "",
            "$2y$04$F2XboA9TUfx9XiR9kfFpP.zX1IxLN4QUvWn7SOu9fzZ7IADtklPGu",
        ),
        (
            "weir",
            "$2b$04$C09cObaVe/W0TWZEf9xfOeZIDrNqEHk1Qzo7SzHXpqn1noJvrIINW",
        ),
        ("weir", "{SSHA}n3XNOir2giS5PUbmGZBFPqayKxlzYWx0"),
    ];

    #[test]
    fn hashes_of_other_programs_are_known() {
        for (password, text) in MADE {
            let hash =
                Hash::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(hash.is_of(password.as_bytes()), "{text}");
            let longer = format!("{password}x");
            for wrong in ["", "wrong", &longer] {
                assert_eq!(
                    hash.is_of(wrong.as_bytes()),
                    wrong == *password,
                    "{text}: {wrong}"
                );
            }
        }
    }
}
