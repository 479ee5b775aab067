package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
)

// PrintReply prints what others wrote, which a terminal must not obey.
func (a *Console) PrintReply(text string) error {
	if a.IsTerminal(a.Stdout) {
		text = excerpt.Plain(text)
	}
	_, err := fmt.Fprintln(a.Stdout, strings.TrimRight(text, "\n"))
	return err
}

// Brief is a path as seen from here, or from home.
func (a *Console) Brief(path string) string {
	if rel, err := filepath.Rel(a.Cwd, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	if rest, ok := strings.CutPrefix(path, home.Lookup(a.Env)("HOME")+"/"); ok {
		return "~/" + rest
	}
	return path
}

// ReadsTerminal reports whether somebody types.
func (a *Console) ReadsTerminal() bool {
	w, ok := a.Stdin.(io.Writer) // a file is both
	return ok && a.IsTerminal(w)
}

// Note tells a person something beside the result.
func (a *Console) Note(format string, v ...any) {
	fmt.Fprintf(a.Stderr, "drover: %s\n", excerpt.Line(fmt.Sprintf(format, v...), 2000))
}

// Hint tells a person something about the settings or the folder that is no error.
func (a *Console) Hint(text string) {
	fmt.Fprintf(a.Stderr, "drover: note: %s\n", excerpt.Line(text, 1000))
}

// NewFile makes a file that is not there yet, for its owner only. If it cannot be
// written as a whole there is none.
func NewFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &control.Error{Code: control.Conflict, Message: fmt.Sprintf("write %s: the file exists", path),
			Fix: "remove it, or choose another name"}
	}
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// HostName is the name of the machine as the name of a worker.
func HostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "worker"
	}
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	if name = strings.Trim(name, "-"); name == "" {
		return "worker"
	}
	return name[:min(len(name), 63)]
}

// Bounds of a prompt that comes on stdin.
const (
	maxStdin  = 10 << 20
	stdinWait = time.Second // for the first byte, when there is a prompt already
)

// ReadStdin reads what is piped in. Where there is a prompt already, a pipe that
// stays open and empty is passed over.
func (a *Console) ReadStdin(ctx context.Context, needed bool) (string, error) {
	type read struct {
		data []byte
		err  error
	}
	first := make(chan struct{})
	done := make(chan read, 1)
	go func() { // ends with stdin, or with the program
		var buf bytes.Buffer
		_, err := io.CopyN(&buf, a.Stdin, 1)
		close(first)
		if err == nil {
			_, err = io.Copy(&buf, io.LimitReader(a.Stdin, maxStdin))
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		done <- read{buf.Bytes(), err}
	}()
	var late <-chan time.Time
	if !needed {
		timer := time.NewTimer(stdinWait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-first:
	case <-late:
		return "", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	select {
	case r := <-done:
		if r.err != nil {
			return "", fmt.Errorf("read stdin: %w", r.err)
		}
		if len(r.data) > maxStdin {
			return "", Usage(fmt.Sprintf("stdin holds more than %d MiB", maxStdin>>20),
				"write it to a file and name the file in the prompt")
		}
		return strings.ToValidUTF8(string(r.data), "\uFFFD"), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Colored reports whether stdout shows colors, and the user wants them.
func (a *Console) Colored() bool {
	return a.IsTerminal(a.Stdout) && !slices.ContainsFunc(a.Env, func(kv string) bool {
		value, ok := strings.CutPrefix(kv, "NO_COLOR=")
		return ok && value != "" || kv == "TERM=dumb"
	})
}

// PrintJSON prints one value, indented, for programs and for people.
func PrintJSON(w io.Writer, v any) error {
	data, err := Marshal(v, "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// PrintArray prints one array, an element a line, without holding all of it.
func PrintArray[T any](w io.Writer, items []T) error {
	var buf, one bytes.Buffer
	enc := json.NewEncoder(&one)
	enc.SetEscapeHTML(false)
	buf.WriteByte('[')
	for i := range items {
		if i > 0 {
			buf.WriteByte(',')
		}
		buf.WriteByte('\n')
		one.Reset()
		if err := enc.Encode(&items[i]); err != nil {
			return fmt.Errorf("encode JSON: %w", err)
		}
		buf.Write(excerpt.JSON(bytes.TrimSuffix(one.Bytes(), []byte("\n"))))
		if buf.Len() > 64<<10 {
			if _, err := buf.WriteTo(w); err != nil {
				return err
			}
		}
	}
	if len(items) > 0 {
		buf.WriteByte('\n')
	}
	buf.WriteString("]\n")
	_, err := buf.WriteTo(w)
	return err
}

// Marshal encodes without escaping for HTML, but escapes what JSON would leave
// alive on a terminal: DEL, C1 controls, and the format class of Unicode.
func Marshal(v any, indent string) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return excerpt.JSON(buf.Bytes()), nil
}

// WholeLine shows a text in one line with all that is in it: what a terminal would
// hide, such as the words before a carriage return, must be seen by who trusts.
func WholeLine(text string) string {
	const most = 4000
	text = strings.ReplaceAll(excerpt.Visible(text), "\n", "<U+000A>")
	if r := []rune(text); len(r) > most {
		return fmt.Sprintf("%s… (%d more characters: look into the file)", string(r[:most]), len(r)-most)
	}
	return text
}

// Confirm asks a question on a terminal, and fails with fix where stdin is none. The answer is read
// on the side, so that Ctrl-C ends the command at once.
func (a *Console) Confirm(ctx context.Context, out io.Writer, question, fix string) error {
	if !a.ReadsTerminal() {
		return Usage("stdin is not a terminal, so the question cannot be asked", fix)
	}
	fmt.Fprint(out, question+" [y/N] ")
	said := make(chan string, 1)
	go func() { // ends with the line, or with the process
		line, _ := bufio.NewReader(a.Stdin).ReadString('\n')
		said <- line
	}()
	select {
	case line := <-said:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("it was not confirmed")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
