// Package theme has the styles of the terminal UI. They use the sixteen colours that
// the user has chosen for the terminal, so that they fit dark and light backgrounds;
// no fact is shown by colour alone.
package theme

import (
	"image/color"

	"charm.land/lipgloss/v2"
)

// Theme is how each sort of text looks. It is made once and only read.
type Theme struct {
	Plain, Bold, Dim, Italic, Strike lipgloss.Style

	Heading, Quote, Link, Code lipgloss.Style // of Markdown

	Keyword, String, Comment, Number lipgloss.Style // of source code

	Prompt, Accent, Good, Warning, Bad lipgloss.Style

	Added, Removed, Hunk lipgloss.Style // of a diff

	Selected, Key lipgloss.Style
	Rule          lipgloss.Style
}

// New makes the theme.
func New() Theme {
	fg := func(c color.Color) lipgloss.Style { return lipgloss.NewStyle().Foreground(c) }
	plain := lipgloss.NewStyle()
	return Theme{
		Plain: plain, Bold: plain.Bold(true), Dim: plain.Faint(true), Italic: plain.Italic(true),
		Strike: plain.Strikethrough(true),

		Heading: fg(lipgloss.Cyan).Bold(true), Quote: plain.Faint(true).Italic(true),
		Link: fg(lipgloss.Blue).Underline(true), Code: fg(lipgloss.Yellow),

		Keyword: fg(lipgloss.Magenta), String: fg(lipgloss.Green), Comment: plain.Faint(true).Italic(true),
		Number: fg(lipgloss.Cyan),

		Prompt: fg(lipgloss.Cyan).Bold(true), Accent: fg(lipgloss.Cyan), Good: fg(lipgloss.Green),
		Warning: fg(lipgloss.Yellow), Bad: fg(lipgloss.Red),

		Added: fg(lipgloss.Green), Removed: fg(lipgloss.Red), Hunk: fg(lipgloss.Cyan).Faint(true),

		Selected: plain.Reverse(true), Key: plain.Bold(true), Rule: plain.Faint(true),
	}
}

// Member is the colour of the n-th of several, such as the teammates of a team.
func (t Theme) Member(n int) lipgloss.Style {
	colours := []color.Color{lipgloss.Cyan, lipgloss.Magenta, lipgloss.Yellow, lipgloss.Green, lipgloss.Blue, lipgloss.Red}
	return lipgloss.NewStyle().Foreground(colours[(n%len(colours)+len(colours))%len(colours)])
}
