package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

const (
	tryTime   = 10 * time.Second // of one attempt
	maxAnswer = 4 << 10          // bytes of an answer that are read

	tries      = 3               // attempts while the server may recover
	firstPause = 2 * time.Second // between attempts; the next one is five times as long
)

// channel is one way to a person.
type channel struct {
	name string // of the setting
	send func(context.Context, message) error
}

// problem is an invalid setting.
type problem struct {
	setting string
	err     error
}

// channels returns the configured channels, and the problems of invalid ones.
func (c Config) channels() (out []channel, problems []problem) {
	if c.Desktop {
		out = append(out, channel{"notify.desktop", c.desktop})
	}
	if c.Command != "" {
		out = append(out, channel{"notify.command", c.command})
	}
	for _, h := range []struct {
		setting, address, key string
		request               func(message) ([]byte, http.Header)
	}{{"notify.webhook", c.Webhook, c.WebhookKey, webhook}, {"notify.ntfy", c.Ntfy, c.NtfyKey, ntfy}} {
		if h.address == "" {
			continue
		}
		if err := check(h.address); err != nil {
			problems = append(problems, problem{h.setting, err})
			continue
		}
		out = append(out, channel{h.setting, func(ctx context.Context, m message) error {
			body, header := h.request(m)
			if h.key != "" {
				header.Set("Authorization", "Bearer "+h.key)
			}
			return c.post(ctx, h.address, body, header)
		}})
	}
	return out, problems
}

func check(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("it is not an address (write it as https://host/path)") // without the address, which may be secret
	}
	return nil
}

// webhook is JSON with a "text" that chat services show.
func webhook(m message) ([]byte, http.Header) {
	return m.json, http.Header{"Content-Type": {"application/json"}}
}

// ntfy is a message of ntfy.sh: the text as body, the rest in headers (docs.ntfy.sh/publish).
func ntfy(m message) ([]byte, http.Header) {
	priority := "default"
	if m.blocking {
		priority = "high"
	}
	return []byte(m.text), http.Header{
		"Content-Type": {"text/plain; charset=utf-8"}, "Title": {m.title}, "Priority": {priority},
	}
}

// refused is an answer that another attempt would not change.
type refused struct{ status string }

func (r refused) Error() string { return "the server answered " + r.status }

// post sends a message, and retries while the server may recover.
func (c Config) post(ctx context.Context, address string, body []byte, header http.Header) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := c.postOnce(ctx, address, body, header)
		var no refused
		if err == nil || errors.As(err, &no) || try == tries {
			return err
		}
		select {
		case <-time.After(pause):
			pause *= 5
		case <-ctx.Done():
			return err
		}
	}
}

func (c Config) postOnce(ctx context.Context, address string, body []byte, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return refused{"nothing: the address is invalid"}
	}
	req.Header = header.Clone()
	req.Header.Set("User-Agent", "drover/"+c.Version)
	res, err := c.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address, which may be secret
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer)
	switch s := res.StatusCode; {
	case s < 300:
		return nil
	case s == http.StatusTooManyRequests || s >= 500:
		return fmt.Errorf("the server answered %s", excerpt.Line(res.Status, 80))
	}
	return refused{excerpt.Line(res.Status, 80)}
}

// command runs the user's command with the announcement as JSON on stdin.
func (c Config) command(ctx context.Context, m message) error {
	return c.run(ctx, []string{"/bin/sh", "-c", c.Command}, m.json)
}

// desktop shows a notification by a program of the system.
func (c Config) desktop(ctx context.Context, m message) error {
	if runtime.GOOS == "darwin" {
		return c.run(ctx, []string{"osascript", "-e", "on run argv",
			"-e", "display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run", m.title, m.text}, nil)
	}
	urgency := "normal"
	if m.blocking {
		urgency = "critical"
	}
	// Servers of notifications may read the body as markup (Desktop Notifications 1.2).
	body := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(m.text)
	err := c.run(ctx, []string{"notify-send", "--app-name=Drover", "--urgency=" + urgency, "--", m.title, body}, nil)
	if err != nil {
		return fmt.Errorf("%w (install notify-send of libnotify)", err)
	}
	return nil
}

func (c Config) run(ctx context.Context, args []string, stdin []byte) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	return c.Run(ctx, args, stdin)
}
