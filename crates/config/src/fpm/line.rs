//! A line's tokens → entries and sections, as PHP's INI grammar reads them (Zend/zend_ini_parser.y).

use super::scan::{Scanner, Token};

/// The content of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    /// `[name]`
    Section(Vec<u8>),
    /// `name = value`, or a name alone.
    Entry(Vec<u8>, Option<Vec<u8>>),
    /// `name[key] = value`
    Element {
        /// The name before the bracket.
        name: Vec<u8>,
        /// The text in the brackets; empty in `name[]`.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
}

/// Why a line cannot be parsed, in PHP's words: `syntax error, unexpected '=' in Unknown on line 1`.
pub(super) type SyntaxError = String;

/// What the meaning of a line depends on, besides its text.
pub(super) struct Meaning<'a> {
    /// Returns the value of an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// `${name:-fallback}` is supported (PHP 8.3).
    pub(super) fallbacks: bool,
}

/// Reads one line. Statements before a syntax error are returned too: PHP acts on them before it finds the error.
pub(super) fn read(line: &[u8], meaning: &Meaning<'_>) -> (Vec<Statement>, Option<SyntaxError>) {
    // PHP reads the line as a C string, so it ends at a NUL.
    let end = line.iter().position(|&byte| byte == 0);
    let mut reader = Reader {
        scanner: Scanner::new(&line[..end.unwrap_or(line.len())], meaning.fallbacks),
        meaning,
        token: Token::End,
        depth: 0,
    };
    reader.advance();
    let mut statements = Vec::new();
    loop {
        match reader.statement() {
            Ok(Some(statement)) => statements.push(statement),
            Ok(None) => return (statements, None),
            Err(Unexpected { expected }) => {
                let error = reader.describe(expected);
                return (statements, Some(error));
            }
        }
    }
}

struct Reader<'a> {
    scanner: Scanner<'a>,
    meaning: &'a Meaning<'a>,
    /// The current token.
    token: Token,
    depth: usize,
}

/// The current token is not allowed here.
struct Unexpected {
    /// The tokens that are allowed, in PHP's words. Empty: too many to list.
    expected: &'static str,
}

const ANYTHING: Unexpected = Unexpected { expected: "" };

impl Reader<'_> {
    fn advance(&mut self) -> Token {
        let next = self.scanner.next();
        std::mem::replace(&mut self.token, next)
    }

    /// The next statement. `None`: end of the line.
    fn statement(&mut self) -> Result<Option<Statement>, Unexpected> {
        loop {
            match &self.token {
                Token::End => return Ok(None),
                Token::EndOfLine => drop(self.advance()),
                Token::Section => {
                    self.advance();
                    let name = self.pieces(false)?;
                    self.expect(b']', "']'")?;
                    return Ok(Some(Statement::Section(name.unwrap_or_default())));
                }
                Token::Label(_) => {
                    let Token::Label(name) = self.advance() else {
                        return Err(ANYTHING);
                    };
                    if self.token != Token::Char(b'=') {
                        return Ok(Some(Statement::Entry(name, None)));
                    }
                    self.advance();
                    let value = self.value()?;
                    return Ok(Some(Statement::Entry(name, Some(value))));
                }
                Token::Offset(_) => {
                    let Token::Offset(name) = self.advance() else {
                        return Err(ANYTHING);
                    };
                    let key = self.pieces(true)?.unwrap_or_default();
                    self.expect(b']', "']'")?;
                    self.expect(b'=', "'='")?;
                    let value = self.value()?;
                    return Ok(Some(Statement::Element { name, key, value }));
                }
                _ => return Err(ANYTHING),
            }
        }
    }

    fn expect(&mut self, character: u8, name: &'static str) -> Result<(), Unexpected> {
        if self.token != Token::Char(character) {
            return Err(Unexpected { expected: name });
        }
        self.advance();
        Ok(())
    }

    /// Parses what follows `=`.
    fn value(&mut self) -> Result<Vec<u8>, Unexpected> {
        let value = match self.token {
            Token::True => b"1".to_vec(),
            Token::False | Token::Null | Token::EndOfLine => Vec::new(),
            _ => return self.expression(),
        };
        self.advance();
        Ok(value)
    }

    /// `a | b & c ^ d`: all operators have the same precedence, from left to right, on integers.
    fn expression(&mut self) -> Result<Vec<u8>, Unexpected> {
        let mut left = self.operand()?;
        while let Token::Char(operator @ (b'|' | b'&' | b'^')) = self.token {
            self.advance();
            let right = integer(&self.operand()?);
            let before = integer(&left);
            let result = match operator {
                b'|' => before | right,
                b'&' => before & right,
                _ => before ^ right,
            };
            left = result.to_string().into_bytes();
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Vec<u8>, Unexpected> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(ANYTHING);
        }
        let value = match self.token {
            Token::Char(b'~') => {
                self.advance();
                (!integer(&self.operand()?)).to_string().into_bytes()
            }
            Token::Char(b'!') => {
                self.advance();
                let value = i32::from(integer(&self.operand()?) == 0);
                value.to_string().into_bytes()
            }
            Token::Char(b'(') => {
                self.advance();
                let value = self.expression()?;
                self.expect(b')', "'^' or '|' or '&' or ')'")?;
                value
            }
            _ => self.pieces(true)?.ok_or(ANYTHING)?,
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Texts, quoted texts and variables, concatenated. `None`: there are none. `constants`: replace names of
    /// constants by their values.
    fn pieces(&mut self, constants: bool) -> Result<Option<Vec<u8>>, Unexpected> {
        let mut all: Option<Vec<u8>> = None;
        loop {
            let piece = match &mut self.token {
                Token::Constant(name) if constants => constant_value(name).into_bytes(),
                Token::Raw(text)
                | Token::Constant(text)
                | Token::Number(text)
                | Token::Text(text)
                | Token::Blanks(text) => std::mem::take(text),
                Token::Char(b'"') => {
                    self.advance();
                    self.quoted()?
                }
                Token::DollarCurly => {
                    all.get_or_insert_default().extend(self.variable()?);
                    continue;
                }
                _ => return Ok(all),
            };
            self.advance();
            all.get_or_insert_default().extend(piece);
        }
    }

    /// Parses up to the closing quote, which stays the current token.
    fn quoted(&mut self) -> Result<Vec<u8>, Unexpected> {
        let mut all = Vec::new();
        loop {
            match &mut self.token {
                Token::Char(b'"') => return Ok(all),
                Token::DollarCurly => all.extend(self.variable()?),
                Token::Quoted(text) => {
                    all.append(text);
                    self.advance();
                }
                _ => {
                    return Err(Unexpected {
                        expected: "TC_DOLLAR_CURLY or TC_QUOTED_STRING or '\"'",
                    });
                }
            }
        }
    }

    /// `${name}`
    fn variable(&mut self) -> Result<Vec<u8>, Unexpected> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(ANYTHING);
        }
        self.advance();
        let Token::Variable(name) = &mut self.token else {
            return Err(Unexpected {
                expected: "TC_VARNAME",
            });
        };
        let name = std::mem::take(name);
        self.advance();
        let mut fallback = Vec::new();
        if self.token == Token::Fallback {
            self.advance();
            fallback = self.pieces(true)?.unwrap_or_default();
        }
        self.expect(b'}', "'}'")?;
        self.depth -= 1;
        let value = str::from_utf8(&name).ok().and_then(self.meaning.variable);
        Ok(value.map_or(fallback, String::into_bytes))
    }

    fn describe(&self, expected: &str) -> SyntaxError {
        let token = match &self.token {
            Token::End => "end of file",
            Token::Section => "TC_SECTION",
            Token::Raw(_) => "TC_RAW",
            Token::Constant(_) => "TC_CONSTANT",
            Token::Number(_) => "TC_NUMBER",
            Token::Text(_) => "TC_STRING",
            Token::Blanks(_) => "TC_WHITESPACE",
            Token::Label(_) => "TC_LABEL",
            Token::Offset(_) => "TC_OFFSET",
            Token::DollarCurly => "TC_DOLLAR_CURLY",
            Token::Variable(_) => "TC_VARNAME",
            Token::Fallback => "TC_FALLBACK",
            Token::Quoted(_) => "TC_QUOTED_STRING",
            Token::True => "BOOL_TRUE",
            Token::False => "BOOL_FALSE",
            Token::Null => "NULL_NULL",
            Token::EndOfLine => "END_OF_LINE",
            Token::Char(character) => &format!("'{}'", char::from(*character)),
        };
        let expected = match expected {
            "" => String::new(),
            expected => format!(", expecting {expected}"),
        };
        let line = self.scanner.line;
        format!("syntax error, unexpected {token}{expected} in Unknown on line {line}")
    }
}

/// The integer at the beginning of a text, as C parses it.
pub(super) fn integer(text: &[u8]) -> i32 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        value = value
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'));
    }
    // C keeps the lower half of a number that does not fit an int.
    (if negative { -value } else { value }) as i32
}

/// The value of a constant. An unknown name is returned unchanged.
fn constant_value(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let known = CONSTANTS.iter().find(|(known, _)| *known == name);
    known.map_or_else(|| name.into_owned(), |(_, value)| (*value).to_owned())
}

/// Maximum nesting of parentheses and variables. Real files need less.
const DEEPEST: usize = 200;

/// The constants that people use in values: error levels, and syslog facilities.
const CONSTANTS: &[(&str, &str)] = &[
    ("E_ALL", "32767"),
    ("E_ERROR", "1"),
    ("E_WARNING", "2"),
    ("E_PARSE", "4"),
    ("E_NOTICE", "8"),
    ("E_CORE_ERROR", "16"),
    ("E_CORE_WARNING", "32"),
    ("E_COMPILE_ERROR", "64"),
    ("E_COMPILE_WARNING", "128"),
    ("E_USER_ERROR", "256"),
    ("E_USER_WARNING", "512"),
    ("E_USER_NOTICE", "1024"),
    ("E_STRICT", "2048"),
    ("E_RECOVERABLE_ERROR", "4096"),
    ("E_DEPRECATED", "8192"),
    ("E_USER_DEPRECATED", "16384"),
    ("LOG_KERN", "0"),
    ("LOG_USER", "8"),
    ("LOG_MAIL", "16"),
    ("LOG_DAEMON", "24"),
    ("LOG_AUTH", "32"),
    ("LOG_SYSLOG", "40"),
    ("LOG_LPR", "48"),
    ("LOG_NEWS", "56"),
    ("LOG_UUCP", "64"),
    ("LOG_CRON", "72"),
    ("LOG_AUTHPRIV", "80"),
    ("LOG_LOCAL0", "128"),
    ("LOG_LOCAL1", "136"),
    ("LOG_LOCAL2", "144"),
    ("LOG_LOCAL3", "152"),
    ("LOG_LOCAL4", "160"),
    ("LOG_LOCAL5", "168"),
    ("LOG_LOCAL6", "176"),
    ("LOG_LOCAL7", "184"),
    ("PHP_OS", "Linux"),
    ("PHP_OS_FAMILY", "Linux"),
    ("DIRECTORY_SEPARATOR", "/"),
    ("PATH_SEPARATOR", ":"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(text: &str, fallbacks: bool) -> (Vec<Statement>, Option<SyntaxError>) {
        let variable = |name: &str| (name == "EV").then(|| "envval".to_owned());
        let meaning = Meaning {
            variable: &variable,
            fallbacks,
        };
        read(format!("{text}\n").as_bytes(), &meaning)
    }

    /// The value of `x = …`. PHP 8.2 returned each of these.
    #[track_caller]
    fn value(text: &str) -> String {
        match read_line(&format!("x = {text}"), false) {
            (statements, None) => match &statements[..] {
                [Statement::Entry(_, Some(value))] => String::from_utf8(value.clone()).unwrap(),
                other => panic!("{other:?}"),
            },
            (_, Some(error)) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn error(text: &str) -> String {
        read_line(text, false).1.expect("an error")
    }

    #[test]
    fn values_are_what_php_makes_of_them() {
        for (text, expected) in [
            ("a b  c   ", "a b  c"),
            ("a\"b\"c", "abc"),
            ("\"a\"  b", "ab"),
            ("a  \"b\"", "ab"),
            ("'a b'", "a b"),
            ("yes", "1"),
            ("TRUE ; comment", "1"),
            ("None", ""),
            ("null", ""),
            ("", ""),
            ("yesno", "yesno"),
            ("\"yes\"", "yes"),
            ("x;y", "x"),
            ("x # y", "x # y"),
            ("x$;y", "x$;y"),
            ("a{b}c", "a{b}c"),
            ("3.5", "3.5"),
            ("${EV}", "envval"),
            ("a${EV}b", "aenvvalb"),
            ("\"a ${EV} b\"", "a envval b"),
            ("${NOPE}y", "y"),
            ("${EV:-x}", ""),
            ("1|2", "3"),
            ("1 2 | 4", "5"),
            ("!a", "1"),
            ("~1", "-2"),
            ("(a)", "a"),
            ("E_ALL & ~E_DEPRECATED & ~E_STRICT", "22527"),
            ("E_ALL ^ E_NOTICE", "32759"),
            (r#""x \" y""#, "x \" y"),
            (r#""x \\""#, "x \\"),
            (r#""C:\dir\""#, "C:\\dir\\"),
            (r#"a$\"b"#, r#"a$\"b"#),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_in_php_s_words() {
        for (text, expected) in [
            ("x = a=b", "unexpected '=' in Unknown on line 1"),
            ("x = yes no", "unexpected BOOL_FALSE in Unknown on line 1"),
            (
                "x = \"abc",
                "unexpected end of file, expecting TC_DOLLAR_CURLY or TC_QUOTED_STRING or '\"' in \
                 Unknown on line 2",
            ),
            ("x = 'abc", "unexpected end of file in Unknown on line 1"),
            (
                "x = ${}",
                "unexpected '}', expecting TC_VARNAME in Unknown on line 1",
            ),
            (
                "x = ${EV",
                "unexpected end of file, expecting '}' in Unknown on line 1",
            ),
            (
                "x[A]",
                "unexpected END_OF_LINE, expecting '=' in Unknown on line 2",
            ),
            (
                "x[A = x",
                "unexpected end of file, expecting ']' in Unknown on line 1",
            ),
            (
                "[abc",
                "unexpected end of file, expecting ']' in Unknown on line 1",
            ),
            (
                "x = (1|2",
                "unexpected END_OF_LINE, expecting '^' or '|' or '&' or ')' in Unknown on line 2",
            ),
            ("x = (1|2)x", "unexpected TC_CONSTANT in Unknown on line 1"),
            ("x = ~", "unexpected END_OF_LINE in Unknown on line 2"),
            ("x = 1 | | 2", "unexpected '|' in Unknown on line 1"),
            ("x = )", "unexpected ')' in Unknown on line 1"),
            ("on = x", "unexpected BOOL_TRUE in Unknown on line 1"),
            ("= x", "unexpected '=' in Unknown on line 1"),
            ("&", "unexpected '&' in Unknown on line 1"),
        ] {
            assert_eq!(error(text), format!("syntax error, {expected}"), "{text}");
        }
    }

    #[test]
    fn a_line_may_say_several_things() {
        let (statements, error) = read_line("[ b ]a = 1\rc[d]=2\re\r", false);
        assert_eq!(error, None);
        assert_eq!(
            statements,
            [
                Statement::Section(b" b ".to_vec()),
                Statement::Entry(b"a".to_vec(), Some(b"1".to_vec())),
                Statement::Element {
                    name: b"c".to_vec(),
                    key: b"d".to_vec(),
                    value: b"2".to_vec()
                },
                Statement::Entry(b"e".to_vec(), None),
            ]
        );
    }

    #[test]
    fn later_php_has_fallbacks() {
        for (text, expected) in [
            ("${NOPE:-x}", "x"),
            ("${NOPE:-\"a b\"}c", "a bc"),
            ("${NOPE:-${EV}}", "envval"),
            ("${EV:-x}", "envval"),
            ("${NOPE:-}", ""),
            ("\"${NOPE:-x}\"", "x"),
        ] {
            let (statements, error) = read_line(&format!("x = {text}"), true);
            assert_eq!(error, None, "{text}");
            let expected = Statement::Entry(b"x".to_vec(), Some(expected.into()));
            assert_eq!(statements, [expected], "{text}");
        }
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(integer(b" -12x"), -12);
        assert_eq!(integer(b"x"), 0);
        assert_eq!(integer(b"4294967297"), 1);
        assert_eq!(integer(b"99999999999999999999"), -1);
    }
}
