//! Reads the `.htaccess` files of a folder, as far as they deny access.
//!
//! weir does not read these files for requests. [`find`] searches for them, so that `weir init` and `weir serve FOLDER`
//! can refuse what they deny, and `weir doctor` can list what they would protect. [`parse`] is pure and accepts any
//! bytes. It follows Apache where access is concerned: `Require`, `Order`/`Allow`/`Deny`, sections by file name, and
//! denying rules of mod_rewrite and mod_alias. Modules in `<IfModule>` count as loaded.
//!
//! Where a rule cannot be expressed exactly, more is refused, never less: what Apache shows to some clients only is
//! refused to all. What depends on more of a request than its path is not refused; [`Left`] names these lines.

mod access;
mod find;
mod pattern;
mod refusals;

use std::path::PathBuf;

pub use find::{find, find_at};
pub use pattern::literal;
pub use refusals::{Refusals, Rule, refusals, refusals_of};

/// One `.htaccess` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Htaccess {
    /// The file.
    pub path: PathBuf,
    /// The URL path of its folder; begins and ends with a slash. Each sequence of bytes that is not UTF-8 is
    /// [`char::REPLACEMENT_CHARACTER`].
    pub folder: String,
    /// Its effects on access, in the order of the file.
    pub effects: Vec<Effect>,
    /// Its lines without an equivalent, in the order of the file.
    pub left: Vec<Left>,
}

/// An effect of a `.htaccess` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Its folder and everything below is denied to all.
    DeniesAll(Guard),
    /// It allows a folder that a parent folder denies.
    Opens(Guard),
    /// It denies files to all: an expression for their URL path, and the text of the rule.
    DeniesFiles(String, String),
    /// It allows files of a denied folder.
    OpensFiles(Guard, String, String),
    /// It denies URLs to all, and no section by file name can allow them.
    DeniesUrls(String, String),
    /// It denies URLs to all, except those of the first expressions.
    DeniesUrlsBut(Vec<String>, String, String),
    /// It lets only some clients in, by address or password: to its folder, or to files with this expression. With
    /// the text of the rule.
    LetsSomeIn(Option<String>, String),
    /// It limits access by a condition about more than the path. With the text of the rule.
    Restricts(String),
    /// Scripts there do not run.
    NoScripts,
    /// URLs are rewritten or redirected.
    Rewrites,
    /// The file cannot be read. Apache then refuses its folder.
    Unreadable(String),
    /// A rule of this kind that could not be understood. With its text.
    Unclear(String),
}

/// Apache has two sets of rules for access. A client must be let in by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// `Require` (mod_authz_core).
    Require,
    /// `Order`, `Allow` and `Deny` (mod_access_compat).
    Order,
}

/// A line that has no equivalent in weir.toml.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Its number; the first is 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// What it is about.
    pub about: About,
}

/// What a [`Left`] line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// It limits access by more than the path, or it was not understood.
    Access,
    /// It limits access to some clients. The equivalent refuses all.
    SomeClients,
    /// Its expression has look-around. The equivalent refuses more URLs.
    Widened,
    /// It rewrites or redirects URLs.
    Rewriting,
    /// Anything else.
    Other,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// In the order of their folders.
    pub files: Vec<Htaccess>,
    /// URL paths of index files, which clients also get by the URL of the folder.
    pub indexes: Vec<String>,
    /// There were more folders than the limit, or folders that may not be read.
    pub incomplete: bool,
}

/// The effects of the text of a `.htaccess` file in `folder`, and the lines without an equivalent.
pub fn parse(text: &str, folder: &str) -> (Vec<Effect>, Vec<Left>) {
    access::effects(text, folder)
}

impl Htaccess {
    /// What it would deny to clients, as text; `None` if it denies nothing.
    pub fn denies(&self) -> Option<String> {
        let folder = &self.folder;
        let mut said = Vec::new();
        for effect in &self.effects {
            said.push(match effect {
                Effect::DeniesAll(_) => format!("denies {folder} to all"),
                Effect::DeniesFiles(_, files)
                | Effect::DeniesUrls(_, files)
                | Effect::DeniesUrlsBut(_, _, files) => {
                    format!("denies {files} in {folder} to all")
                }
                Effect::LetsSomeIn(_, how) | Effect::Restricts(how) => {
                    format!("limits {folder} by {how}")
                }
                Effect::NoScripts => format!("runs no scripts in {folder}"),
                Effect::Unreadable(why) => {
                    format!("cannot be read ({why}), so Apache refuses {folder}")
                }
                Effect::Unclear(what) => format!("has {what}, which weir does not understand"),
                Effect::Opens(_) | Effect::OpensFiles(..) | Effect::Rewrites => continue,
            });
        }
        said.dedup();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// It denies something that [`refusals`] cannot express.
    pub fn is_beyond(&self) -> bool {
        let beyond = |effect: &Effect| matches!(effect, Effect::Restricts(_) | Effect::Unclear(_));
        self.effects.iter().any(beyond)
    }

    /// It lets some clients in that [`refusals`] refuse, too.
    pub fn lets_some_in(&self) -> bool {
        let some = |effect: &Effect| matches!(effect, Effect::LetsSomeIn(..));
        self.effects.iter().any(some)
    }
}

#[cfg(test)]
mod tests;
