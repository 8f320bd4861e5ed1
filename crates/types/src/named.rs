//! Enumerations whose values have names in the configuration.

/// An enumeration whose values have names, and the error for an unknown name. `$what` says what
/// kind of thing the names stand for.
#[macro_export]
macro_rules! named {
    (
        $(#[$enum_doc:meta])* $policy:ident,
        $(#[$error_doc:meta])* $unknown:ident of $what:literal,
        $($(#[$doc:meta])* $variant:ident = $name:literal,)*
    ) => {
        $(#[$enum_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $policy {
            $($(#[$doc])* $variant,)*
        }

        $(#[$error_doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $unknown(pub String);

        impl $policy {
            /// Every policy.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name in configuration and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl std::str::FromStr for $policy {
            type Err = $unknown;

            fn from_str(name: &str) -> Result<Self, $unknown> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|policy| policy.name() == name)
                    .ok_or_else(|| $unknown(name.to_owned()))
            }
        }

        impl std::fmt::Display for $policy {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::fmt::Display for $unknown {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let names: Vec<_> = $policy::ALL.iter().map(|known| format!("`{known}`")).collect();
                write!(f, "there is no {} `{}`; known: {}", $what, self.0, names.join(", "))
            }
        }

        impl std::error::Error for $unknown {}
    };
}
