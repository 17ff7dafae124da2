package cuda

import (
	"embed"
	"io"
	"io/fs"
	"strings"
)

//go:embed lib
var lib embed.FS

// libFiles is the part of the project that is the same for every program.
func libFiles() []File {
	var files []File
	err := fs.WalkDir(lib, "lib", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := lib.ReadFile(path)
		if err != nil {
			return err
		}
		files = append(files, textFile(strings.TrimPrefix(path, "lib/"), string(data)))
		return nil
	})
	if err != nil {
		panic("BUG: embedded files: " + err.Error())
	}
	return files
}

func textFile(path, text string) File {
	return File{Path: path, Write: func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}}
}
