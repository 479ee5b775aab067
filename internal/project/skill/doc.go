// Package skill finds skills, which are folders with a SKILL.md, and remembers
// which of them a session has used.
//
// It promises that a skill is read through the folder it lies in and no link
// leads out of it, that a file with faults is loaded with a [Skill.Warnings] or
// named in [Catalog.Warnings] and never dropped in silence, and that the texts
// it makes for a model are bounded and the same for the same skills. It runs
// nothing, and decides no permission: it reports the rules that a skill asks for,
// and whether its source is trusted.
package skill
