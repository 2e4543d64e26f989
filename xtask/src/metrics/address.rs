//! Where a program serves its metrics if nobody says otherwise.

use super::declared::literal;
use anyhow::Context;
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Field, Meta, Token};

/// The default of a clap argument in a source file; `None`: it has none. The argument must be there.
pub(super) fn default_of(text: &str, argument: &str) -> anyhow::Result<Option<String>> {
    let mut fields = Fields {
        wanted: argument,
        found: Vec::new(),
    };
    fields.visit_file(&syn::parse_file(text)?);
    let mut found = fields.found.into_iter();
    found
        .next()
        .with_context(|| format!("there is no argument --{argument}"))
}

/// The defaults of the arguments of a name.
struct Fields<'a> {
    wanted: &'a str,
    found: Vec<Option<String>>,
}

impl Visit<'_> for Fields<'_> {
    fn visit_field(&mut self, field: &Field) {
        if field.ident.as_ref().is_none_or(|name| name != self.wanted) {
            return;
        }
        let mut arguments = field.attrs.iter().filter(|one| one.path().is_ident("arg"));
        if let Some(argument) = arguments.next() {
            let parts = argument.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let mut parts = parts.into_iter().flatten();
            self.found.push(parts.find_map(|part| {
                let part = part.require_name_value().ok()?;
                let is_default = part.path.is_ident("default_value");
                is_default.then(|| literal(&part.value)).flatten()
            }));
        }
    }
}
