package shell

import (
	"encoding/json"
	"reflect"
	"testing"
)

// A driver that was made for a command runs just what its input says, which is what
// another host would read there; and it judges any other input by itself.
func TestCommandInput(t *testing.T) {
	for _, c := range []Command{
		{Args: []string{"true"}}, {Line: "echo \"<a>\"\n", Cwd: "/tmp", TTY: true}, {Line: "echo \xff"}, {Args: []string{"a", "\xc3("}}, {Args: []string{"a"}, Cwd: "/\xff"},
		{}, {Args: []string{""}}, {Args: []string{"a"}, Line: "b"}, {Args: []string{"a"}, Cwd: "b"}, {Args: []string{"a", "b\x00"}}, {Args: []string{}, Line: "a"},
	} {
		d, input := New(Config{}).Command(Client{}, c)
		want, wantErr := parse(input)
		for range 2 {
			got, err := d.parse(input)
			if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got.argv(), want.argv()) || got.Cwd != want.Cwd || got.TTY != want.TTY {
				t.Errorf("%+v is %+v, %v; its input says %+v, %v", c, got, err, want, wantErr)
			}
			if err := d.Check(input); (err == nil) != (wantErr == nil) {
				t.Errorf("%+v: %v, want %v", c, err, wantErr)
			}
		}
		other := json.RawMessage(`{"args":["other"]}`)
		if got, err := d.parse(other); err != nil || got.Args[0] != "other" {
			t.Errorf("another input is %+v, %v", got, err)
		}
		if err := d.Check(json.RawMessage(`{"line":""}`)); err == nil {
			t.Error("an empty command is good")
		}
	}
}
