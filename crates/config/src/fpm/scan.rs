//! A line of php-fpm.conf → tokens, as PHP's INI scanner splits it (Zend/zend_ini_scanner.l, mode NORMAL).
//!
//! The scanner is a table of rules. In each state it tries every rule; the longest match wins, and of two equally
//! long matches the first. PHP's generated scanner does the same, so a line has the same meaning here, odd lines
//! included. PHP-FPM gives its scanner one line at a time, so a value never continues on the next line.

/// A piece of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// End of the line, or text that PHP does not continue after.
    End,
    /// `[`: the name of a section follows.
    Section,
    /// `'…'`
    Raw(Vec<u8>),
    /// A word that may be the name of a constant.
    Constant(Vec<u8>),
    /// A number, as text.
    Number(Vec<u8>),
    /// Any other text.
    Text(Vec<u8>),
    /// Whitespace inside a value.
    Blanks(Vec<u8>),
    /// Name of an entry.
    Label(Vec<u8>),
    /// Name of an entry with `[`: its key follows.
    Offset(Vec<u8>),
    /// `${`
    DollarCurly,
    /// Name of a variable.
    Variable(Vec<u8>),
    /// `:-` in `${name:-fallback}`, since PHP 8.3.
    Fallback,
    /// Text inside double quotes.
    Quoted(Vec<u8>),
    /// `yes`, `on`, `true`
    True,
    /// `no`, `off`, `false`, `none`
    False,
    /// `null`
    Null,
    /// The end of a value, or an empty line.
    EndOfLine,
    /// One of the characters with a meaning of their own.
    Char(u8),
}

/// Splits one line.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Number of the current line, from 1: PHP's count, which its messages contain.
    pub(super) line: u32,
    state: State,
    stack: Vec<State>,
    fallbacks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Initial,
    Value,
    SectionValue,
    Offset,
    DoubleQuotes,
    VarName,
    VarFallback,
}

/// The rule that matched.
#[derive(Debug, Clone, Copy)]
enum Rule {
    SectionStart,
    SectionEnd,
    OffsetStart,
    OffsetEnd,
    True,
    False,
    Null,
    Label,
    Equals,
    EqualsAgain,
    Token,
    Skip,
    EndOfLine,
    Comment,
    Raw,
    DollarCurly,
    Constant,
    Number,
    Operator,
    Text,
    QuoteStart,
    QuoteEnd,
    Quoted,
    Blanks,
    Variable,
    FallbackStart,
    CurlyEnd,
    ValueEnd,
}

impl<'a> Scanner<'a> {
    /// `text` is a line with its line ending. `fallbacks`: `${name:-fallback}` is supported.
    pub(super) fn new(text: &'a [u8], fallbacks: bool) -> Self {
        // PHP skips a byte order mark at the beginning of any line.
        let at = match text {
            [0xef, 0xbb, 0xbf, _, ..] => 3,
            _ => 0,
        };
        Self {
            text,
            at,
            line: 1,
            state: State::Initial,
            stack: Vec::new(),
            fallbacks,
        }
    }

    /// The next token. At the end it always returns [`Token::End`].
    pub(super) fn next(&mut self) -> Token {
        loop {
            let rest = &self.text[self.at..];
            if rest.is_empty() {
                if self.state == State::Value {
                    self.state = State::Initial;
                    return Token::EndOfLine;
                }
                return Token::End;
            }
            let Some((rule, length)) = self.longest(rest) else {
                // PHP stops here.
                self.at = self.text.len();
                self.state = State::Initial;
                return Token::End;
            };
            if let Some(token) = self.take(rule, &rest[..length]) {
                return token;
            }
        }
    }

    /// The rule with the longest match of `rest`.
    fn longest(&self, rest: &[u8]) -> Option<(Rule, usize)> {
        let mut best: Option<(Rule, usize)> = None;
        let mut offer = |rule, length: usize| {
            if length > best.map_or(0, |(_, longest)| longest) {
                best = Some((rule, length));
            }
        };
        let blanks = span(rest, is_blank);
        match self.state {
            State::Initial => {
                offer(Rule::SectionStart, usize::from(rest[0] == b'['));
                let label = span(rest, is_label);
                if label > 0 && rest.get(label) == Some(&b'[') {
                    let after = span(&rest[label + 1..], is_blank);
                    offer(Rule::OffsetStart, label + 1 + after);
                }
                offer_words(rest, &mut offer);
                offer(Rule::Label, label);
                if rest.get(blanks) == Some(&b'=') {
                    let after = span(&rest[blanks + 1..], is_blank);
                    offer(Rule::Equals, blanks + 1 + after);
                }
                offer(Rule::Token, usize::from(TOKENS.contains(&rest[0])));
                offer(Rule::Skip, blanks);
                offer(Rule::EndOfLine, line_end(rest, blanks));
                offer(Rule::Comment, comment(rest, blanks));
            }
            State::Value => {
                offer(Rule::Raw, single_quoted(rest));
                offer(Rule::DollarCurly, dollar_curly(rest));
                offer_words(rest, &mut offer);
                offer(Rule::EndOfLine, line_end(rest, blanks));
                offer(Rule::Constant, constant(rest));
                offer(Rule::Number, number(rest));
                if OPERATORS.contains(&rest[0]) {
                    offer(Rule::Operator, 1 + span(&rest[1..], is_blank));
                }
                offer(Rule::EqualsAgain, usize::from(rest[0] == b'='));
                offer(Rule::Text, text(rest, is_value, false));
                offer(Rule::QuoteStart, quote_start(rest, blanks));
                offer(Rule::Blanks, blanks);
                offer(Rule::Comment, comment(rest, blanks));
                // A single quote without a closing one does not end a value: PHP finds the end of the file there.
                offer(Rule::ValueEnd, usize::from(rest[0] != b'\''));
            }
            State::SectionValue | State::Offset => {
                offer(Rule::Raw, single_quoted(rest));
                if self.state == State::SectionValue && rest[0] == b']' {
                    let after = 1 + span(&rest[1..], is_blank);
                    offer(
                        Rule::SectionEnd,
                        match new_line(&rest[after..]) {
                            0 => after,
                            end => after + end,
                        },
                    );
                }
                if self.state == State::Offset && rest.get(blanks) == Some(&b']') {
                    offer(Rule::OffsetEnd, blanks + 1);
                }
                offer(Rule::DollarCurly, dollar_curly(rest));
                offer(Rule::Constant, constant(rest));
                offer(Rule::Number, number(rest));
                offer(Rule::Text, text(rest, is_section_value, true));
                offer(Rule::QuoteStart, quote_start(rest, blanks));
                offer(Rule::Blanks, blanks);
            }
            State::DoubleQuotes => {
                offer(Rule::DollarCurly, dollar_curly(rest));
                if rest[0] == b'"' {
                    offer(Rule::QuoteEnd, 1 + span(&rest[1..], is_blank));
                }
                offer(Rule::Quoted, 1);
            }
            State::VarName => {
                let name = match self.fallbacks {
                    true => variable(rest),
                    false => span(rest, is_label),
                };
                offer(Rule::Variable, name);
                if self.fallbacks && rest.starts_with(b":-") {
                    offer(Rule::FallbackStart, 2);
                }
                offer(Rule::CurlyEnd, usize::from(rest[0] == b'}'));
            }
            State::VarFallback => {
                offer(Rule::DollarCurly, dollar_curly(rest));
                offer(Rule::CurlyEnd, usize::from(rest[0] == b'}'));
                offer(Rule::Constant, constant(rest));
                offer(Rule::Number, number(rest));
                offer(Rule::Text, text(rest, is_fallback, true));
                offer(Rule::QuoteStart, quote_start(rest, blanks));
                offer(Rule::Blanks, blanks);
            }
        }
        best
    }

    /// Consumes what a rule matched. `None`: it is not a token.
    fn take(&mut self, rule: Rule, matched: &[u8]) -> Option<Token> {
        self.at += matched.len();
        Some(match rule {
            Rule::SectionStart => {
                self.state = State::SectionValue;
                Token::Section
            }
            Rule::SectionEnd => {
                self.state = State::Initial;
                self.line += 1;
                Token::Char(b']')
            }
            Rule::OffsetStart => {
                self.state = State::Offset;
                let name = matched.trim_ascii_end();
                let name = name.strip_suffix(b"[").unwrap_or(name);
                Token::Offset(trimmed(name))
            }
            Rule::OffsetEnd => {
                self.state = State::Initial;
                Token::Char(b']')
            }
            Rule::True => Token::True,
            Rule::False => Token::False,
            Rule::Null => Token::Null,
            Rule::Label => Token::Label(trimmed(matched)),
            Rule::Equals => {
                self.state = State::Value;
                Token::Char(b'=')
            }
            Rule::EqualsAgain => {
                self.at -= matched.len();
                self.state = State::Initial;
                Token::EndOfLine
            }
            Rule::Token | Rule::Operator => Token::Char(matched[0]),
            Rule::Skip => return None,
            Rule::EndOfLine | Rule::Comment => {
                self.state = State::Initial;
                self.line += 1;
                Token::EndOfLine
            }
            Rule::Raw => Token::Raw(matched[1..matched.len() - 1].to_vec()),
            Rule::DollarCurly => {
                self.push(State::VarName);
                Token::DollarCurly
            }
            Rule::Constant => Token::Constant(matched.to_vec()),
            Rule::Number => Token::Number(matched.to_vec()),
            Rule::Text => Token::Text(matched.to_vec()),
            Rule::Blanks => Token::Blanks(matched.to_vec()),
            Rule::QuoteStart => {
                self.push(State::DoubleQuotes);
                Token::Char(b'"')
            }
            Rule::QuoteEnd => {
                self.pop();
                Token::Char(b'"')
            }
            Rule::Quoted => {
                self.at -= matched.len();
                self.quoted()
            }
            Rule::Variable => Token::Variable(trimmed(matched)),
            Rule::FallbackStart => {
                self.pop();
                self.push(State::VarFallback);
                Token::Fallback
            }
            Rule::CurlyEnd => {
                self.pop();
                Token::Char(b'}')
            }
            Rule::ValueEnd => {
                self.state = State::Initial;
                Token::EndOfLine
            }
        })
    }

    /// The text inside double quotes up to their end or a variable, with escapes resolved.
    fn quoted(&mut self) -> Token {
        let text = &self.text[self.at..];
        let mut end = 0;
        while end < text.len() {
            match text[end] {
                b'"' => break,
                b'$' if text.get(end + 1) == Some(&b'{') => break,
                b'\\' if end + 1 < text.len() => {
                    // In C:\path\" at the end of a line the backslash belongs to the path, and the quote closes the
                    // text.
                    let last = matches!(text.get(end + 2), None | Some(b'\n' | b'\r'));
                    if text[end + 1] == b'"' && last {
                        end += 1;
                        break;
                    }
                    end += 2;
                }
                _ => end += 1,
            }
        }
        let end = end.min(text.len());
        self.at += end;
        let mut value = Vec::with_capacity(end);
        let mut rest = &text[..end];
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (byte, rest.first()) {
                (b'\\', Some(&escaped @ (b'"' | b'\\' | b'$'))) => {
                    value.push(escaped);
                    rest = &rest[1..];
                }
                (b'\\', Some(&other)) => {
                    value.extend_from_slice(&[b'\\', other]);
                    rest = &rest[1..];
                    self.line += u32::from(other == b'\n');
                }
                _ => {
                    value.push(byte);
                    let ends = byte == b'\n' || (byte == b'\r' && rest.first() != Some(&b'\n'));
                    self.line += u32::from(ends);
                }
            }
        }
        Token::Quoted(value)
    }

    fn push(&mut self, state: State) {
        self.stack.push(self.state);
        self.state = state;
    }

    fn pop(&mut self) {
        self.state = self.stack.pop().unwrap_or(State::Initial);
    }
}

/// `yes`, `no`, `null` and the like, with trailing blanks.
fn offer_words(rest: &[u8], offer: &mut impl FnMut(Rule, usize)) {
    let words: [(Rule, &[&[u8]]); 3] = [
        (Rule::True, &[b"true", b"on", b"yes"]),
        (Rule::False, &[b"false", b"off", b"no", b"none"]),
        (Rule::Null, &[b"null"]),
    ];
    for (rule, words) in words {
        for word in words {
            if rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word) {
                offer(rule, word.len() + span(&rest[word.len()..], is_blank));
            }
        }
    }
}

/// Number of leading bytes for which `is` holds.
fn span(text: &[u8], is: impl Fn(u8) -> bool) -> usize {
    text.iter().take_while(|&&byte| is(byte)).count()
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn is_label(byte: u8) -> bool {
    !b"=\n\r\t;&|^$~(){}!\"[\0".contains(&byte)
}

fn is_value(byte: u8) -> bool {
    !b"$= \t\n\r;&|^~()!\"'\0".contains(&byte)
}

fn is_section_value(byte: u8) -> bool {
    !b"$\n\r;\"']\\\0".contains(&byte)
}

fn is_fallback(byte: u8) -> bool {
    !b"$\n\r;\"'}\\\0".contains(&byte)
}

/// Text of characters that `is` allows, dollars that do not begin a variable, and, if `escapes`, any character after
/// a backslash.
fn text(rest: &[u8], is: impl Fn(u8) -> bool, escapes: bool) -> usize {
    let mut at = 0;
    while at < rest.len() {
        let next = rest.get(at + 1);
        at += match rest[at] {
            b'$' => match (next, rest.get(at + 2)) {
                (None | Some(b'{' | b'\0'), _) => break,
                (Some(b'\\'), Some(_)) => 3,
                _ => 2,
            },
            b'\\' if escapes => match next {
                None => break,
                Some(_) => 2,
            },
            byte if is(byte) => 1,
            _ => break,
        };
    }
    at
}

fn constant(rest: &[u8]) -> usize {
    match rest[0].is_ascii_alphabetic() || rest[0] == b'_' {
        true => span(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        false => 0,
    }
}

/// `-?[0-9]+`, or digits with a decimal point (without a sign).
fn number(rest: &[u8]) -> usize {
    let digits = |text: &[u8]| span(text, |byte| byte.is_ascii_digit());
    if rest[0] == b'-' {
        return match digits(&rest[1..]) {
            0 => 0,
            digits => 1 + digits,
        };
    }
    let whole = digits(rest);
    if rest.get(whole) != Some(&b'.') {
        return whole;
    }
    match digits(&rest[whole + 1..]) {
        0 if whole == 0 => 0,
        fraction => whole + 1 + fraction,
    }
}

/// Name of a variable if a fallback may follow: it ends before `:-`.
fn variable(rest: &[u8]) -> usize {
    let most = span(rest, |byte| is_label(byte) && byte != b']');
    let fallback = rest[..most].windows(2).position(|pair| pair == b":-");
    let at_end = (rest[..most].last() == Some(&b':') && rest.get(most) == Some(&b'-'))
        .then_some(most.saturating_sub(1));
    fallback.or(at_end).unwrap_or(most)
}

fn single_quoted(rest: &[u8]) -> usize {
    if rest[0] != b'\'' {
        return 0;
    }
    match span(&rest[1..], |byte| byte != b'\'') {
        0 => 0,
        inner if rest.get(inner + 1) == Some(&b'\'') => inner + 2,
        _ => 0,
    }
}

fn dollar_curly(rest: &[u8]) -> usize {
    if rest.starts_with(b"${") { 2 } else { 0 }
}

fn quote_start(rest: &[u8], blanks: usize) -> usize {
    match rest.get(blanks) {
        Some(b'"') => blanks + 1,
        _ => 0,
    }
}

/// Length of the line ending at the beginning of `rest`.
fn new_line(rest: &[u8]) -> usize {
    match rest {
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        _ => 0,
    }
}

fn line_end(rest: &[u8], blanks: usize) -> usize {
    match new_line(&rest[blanks..]) {
        0 => 0,
        end => blanks + end,
    }
}

fn comment(rest: &[u8], blanks: usize) -> usize {
    if rest.get(blanks) != Some(&b';') {
        return 0;
    }
    let text = blanks + span(&rest[blanks..], |byte| !matches!(byte, b'\r' | b'\n'));
    match new_line(&rest[text..]) {
        0 => 0,
        end => text + end,
    }
}

fn trimmed(text: &[u8]) -> Vec<u8> {
    text.trim_ascii().to_vec()
}

/// Characters that are tokens of their own outside of values. Nearly all of them are syntax errors there.
const TOKENS: &[u8] = b":,.[]\"'()&|^+,-./*=%$!~<>?@{}";

const OPERATORS: &[u8] = b"&|^~()!";
