//! What a configured text with `${variable}` in it means for one request.
//!
//! Templates stand for the values of `redirect`, `params`, `set_headers` and the like, and for lines of the access
//! log. Each of them escapes in its own way, so nothing is escaped here.

use weir_config::{Piece, Template, Variable};

/// Something that knows the values of variables.
pub trait Variables {
    /// Appends the value of `variable`, or nothing where there is none (a header that was not sent, what only the
    /// log knows).
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
