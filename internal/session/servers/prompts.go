package servers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/mcptool"
)

// promptWait is how long servers may take for their lists of prompts.
const promptWait = 10 * time.Second

// Prompt is a prompt that a server offers.
type Prompt struct {
	Server      string
	Name        string // at the server
	Command     string // mcp__SERVER__NAME
	Description string
	Arguments   []PromptArgument
}

// PromptArgument is an argument of a prompt.
type PromptArgument struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
}

// Hint says which arguments the prompt takes.
func (p Prompt) Hint() string {
	var words []string
	for _, a := range p.Arguments {
		word := "[" + a.Name + "]"
		if a.Required {
			word = a.Name
		}
		words = append(words, word)
	}
	return excerpt.Line(strings.Join(words, " "), environment.AboutChars)
}

// fill gives the arguments the words in order; the last one gets all that are left.
func (p Prompt) fill(words []string) (map[string]string, error) {
	out := map[string]string{}
	for i, a := range p.Arguments {
		switch {
		case i < len(words) && i == len(p.Arguments)-1:
			out[a.Name] = strings.Join(words[i:], " ")
		case i < len(words):
			out[a.Name] = words[i]
		case a.Required:
			return nil, fmt.Errorf("/%s needs %s (write it as: /%s %s)", p.Command, a.Name, p.Command, p.Hint())
		}
	}
	if len(p.Arguments) == 0 && len(words) > 0 {
		return nil, fmt.Errorf("/%s takes no arguments", p.Command)
	}
	return out, nil
}

// Prompts are those that the connected servers of the agent offer.
func (a *Agent) Prompts(ctx context.Context) ([]Prompt, error) {
	ctx, done := context.WithTimeout(ctx, promptWait)
	defer done()
	var out []Prompt
	var errs []error
	for _, one := range a.served {
		conn, _ := one.lease.Peek()
		if conn == nil || !conn.Offers("prompts") {
			continue
		}
		errs = append(errs, pages(ctx, conn, "prompts/list", func(raw json.RawMessage) error {
			var page struct {
				Prompts []struct {
					Name        string           `json:"name"`
					Title       string           `json:"title"`
					Description string           `json:"description"`
					Arguments   []PromptArgument `json:"arguments"`
				} `json:"prompts"`
			}
			if err := json.Unmarshal(raw, &page); err != nil {
				return err
			}
			for _, p := range page.Prompts {
				if p.Name != "" && len(out) < maxListed {
					out = append(out, Prompt{one.Name, p.Name, mcptool.Name(one.Name, p.Name),
						excerpt.Line(cmp.Or(p.Description, p.Title), environment.AboutChars), p.Arguments})
				}
			}
			return nil
		}))
	}
	return out, errors.Join(errs...)
}

// Prompt makes the text of a prompt of a server. found is false if none has the name.
func (a *Agent) Prompt(ctx context.Context, command string, words []string) (text string, found bool, err error) {
	all, err := a.Prompts(ctx)
	for _, p := range all {
		if !strings.EqualFold(p.Command, command) {
			continue
		}
		args, err := p.fill(words)
		if err != nil {
			return "", true, err
		}
		one := a.find(p.Server)
		conn, err := one.lease.Conn(ctx)
		if err != nil {
			return "", true, err
		}
		own, stop := a.answering(conn, one.Name)
		defer stop()
		raw, err := conn.CallOpt(ctx, "prompts/get", map[string]any{"name": p.Name, "arguments": args},
			mcpclient.CallOptions{Timeout: one.Server.Server.Timeout(), Answer: own})
		if err != nil {
			return "", true, err
		}
		text, err = mcptool.PromptText(raw)
		return excerpt.Inert(text), true, err
	}
	return "", false, err
}
