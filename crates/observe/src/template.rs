//! Renders a configured text with `${variable}` in it for one request.
//!
//! Templates are used for the values of `redirect`, `params`, `set_headers` and the like, and for lines of the access
//! log. Each of these has its own escaping, so nothing is escaped here.

use weir_config::{Piece, Template, Variable};

/// Provides the values of variables.
pub trait Variables {
    /// Appends the value of `variable`, or nothing if there is none (a header that was not sent, a value that only
    /// the log has).
    fn put(&self, variable: &Variable, out: &mut Vec<u8>);
}

/// Appends `template` with the values of `variables`.
pub fn render(template: &Template, variables: &(impl Variables + ?Sized), out: &mut Vec<u8>) {
    for piece in &template.pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Variable(variable) => variables.put(variable, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Variables for Fixed {
        fn put(&self, variable: &Variable, out: &mut Vec<u8>) {
            match variable {
                Variable::Host => out.extend_from_slice(b"shop.example"),
                Variable::Uri => out.extend_from_slice(b"/a?b=\xff"),
                Variable::Header(name) => out.extend_from_slice(name.as_bytes()),
                _ => {}
            }
        }
    }

    #[test]
    fn pieces_in_order() {
        let template = Template {
            pieces: vec![
                Piece::Text("https://".into()),
                Piece::Variable(Variable::Host),
                Piece::Variable(Variable::Uri),
                Piece::Variable(Variable::Pool),
                Piece::Text(" ".into()),
                Piece::Variable(Variable::Header("x-a".into())),
            ],
        };
        let mut out = b"> ".to_vec();
        render(&template, &Fixed, &mut out);
        assert_eq!(out, b"> https://shop.example/a?b=\xff x-a");
    }
}
