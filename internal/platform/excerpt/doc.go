// Package excerpt escapes text of unknown origin before a model or a terminal sees
// it. No other package decides how.
//
// [Plain] and [Visible] are for output. [Exact] and [Call] are for text on which a
// decision is based: they lose nothing, so two different texts are never shown alike.
// [JSON] escapes text that must stay JSON; [Prose] is for the answer of a model. Cuts
// fall between code points, no control byte other than tab and newline survives, and
// invisible characters are shown as marks, such as <U+202E>. The package does no I/O,
// keeps no state, and does not protect against misleading plain text.
package excerpt
