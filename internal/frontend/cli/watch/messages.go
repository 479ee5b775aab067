package watch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// printMessages prints the newest messages of an agent.
func (a *app) printMessages(ctx context.Context, f console.Found, limit int) error {
	m, err := console.Ask(ctx, f.Open, func(api control.API) (control.Messages, error) {
		return api.Messages(ctx, control.MessagesRequest{Ref: string(f.Record.ID), Limit: limit})
	})
	if err != nil {
		return fmt.Errorf("read messages of %s: %w", f.Record.ID, err)
	}
	var b strings.Builder
	for _, one := range m.List {
		b.WriteString(messageText(one))
	}
	_, err = a.Stdout.Write([]byte(b.String()))
	return err
}

// messageText is a message for people: a head, then the text, with a line for
// each call and each result.
func messageText(m control.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", m.At.UTC().Format(time.RFC3339), console.Cell(m.Role, 20))
	for _, p := range m.Parts {
		switch p.Type {
		case "text":
			b.WriteString(strings.TrimRight(excerpt.Plain(p.Text), "\n") + "\n")
			if p.Cut > 0 {
				fmt.Fprintf(&b, "[%d more bytes]\n", p.Cut)
			}
		case "tool_use":
			fmt.Fprintf(&b, "[%s %s]\n", console.Cell(p.Tool, 60), excerpt.Line(p.Text, partChars))
		default:
			fmt.Fprintf(&b, "[%s: %s]\n", console.Cell(p.Type, 40), excerpt.Line(p.Text, partChars))
		}
	}
	return b.String() + "\n"
}

// partChars is how much of a call, or of its result, a line shows.
const partChars = 200
