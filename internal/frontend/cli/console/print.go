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

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
)

// PrintReply prints text of an agent, harmless for a terminal.
func (a *Console) PrintReply(text string) error {
	if a.IsTerminal(a.Stdout) {
		text = excerpt.Plain(text)
	}
	return a.Println(strings.TrimRight(text, "\n"))
}

// Brief is a path relative to the folder, or to the home of the user.
func (a *Console) Brief(path string) string {
	if rel, err := filepath.Rel(a.Cwd, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	if rest, ok := strings.CutPrefix(path, home.Lookup(a.Env)("HOME")+"/"); ok {
		return "~/" + rest
	}
	return path
}

// ReadsTerminal reports whether stdin is a terminal.
func (a *Console) ReadsTerminal() bool {
	w, ok := a.Stdin.(io.Writer) // a file is both
	return ok && a.IsTerminal(w)
}

// Println prints a line of the result.
func (a *Console) Println(v ...any) error {
	_, err := fmt.Fprintln(a.Stdout, v...)
	return err
}

// Printf prints a part of the result.
func (a *Console) Printf(format string, v ...any) error {
	_, err := fmt.Fprintf(a.Stdout, format, v...)
	return err
}

// Note prints a line for the user on stderr.
func (a *Console) Note(format string, v ...any) {
	fmt.Fprintf(a.Stderr, "drover: %s\n", excerpt.Line(fmt.Sprintf(format, v...), 2000))
}

// Hint prints a note about settings, the folder or the outcome on stderr.
func (a *Console) Hint(text string) {
	fmt.Fprintf(a.Stderr, "drover: note: %s\n", excerpt.Line(text, 1000))
}

// NewFile writes a new file that only its owner can read. After an error the file does not exist.
func NewFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return Conflict(fmt.Sprintf("write %s: the file exists", path), "remove it, or choose another name")
	}
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// HostName is the name of the machine in the form of a worker's name.
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

// ReadFile reads a whole file that a command line names, or stdin for -, of at most so many bytes.
func (a *Console) ReadFile(name string, most int64) ([]byte, error) {
	in := a.Stdin
	if name != "-" {
		f, err := os.Open(a.Path(name))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %s", Size(most))
	}
	return data, err
}

// Bounds of a prompt that comes on stdin.
const (
	maxStdin  = 10 << 20
	stdinWait = time.Second // for the first byte, when there is a prompt already
)

// ReadStdin reads piped input. Unless it is needed, a pipe that stays open and empty is ignored after a
// second.
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

// Colored reports whether the output has colors: stdout is a terminal, and NO_COLOR is not set.
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

// PrintArray prints an array with one element per line, in parts.
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

// Marshal encodes without escaping for HTML. It escapes characters that JSON allows and a terminal
// would interpret: DEL, C1 controls, and the format class of Unicode.
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

// WholeLine shows a text in one line with every character visible. A user who trusts a file must see
// the parts that a terminal would hide, such as the words before a carriage return.
func WholeLine(text string) string {
	const most = 4000
	text = strings.ReplaceAll(excerpt.Visible(text), "\n", "<U+000A>")
	if r := []rune(text); len(r) > most {
		return fmt.Sprintf("%s… (%d more characters: look into the file)", string(r[:most]), len(r)-most)
	}
	return text
}

// Confirm asks a question on a terminal, and fails with fix if stdin is not a terminal. It reads the
// answer in a goroutine, so that Ctrl-C ends the command at once.
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
