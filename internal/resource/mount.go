package resource

import (
	"path"
	"strings"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
)

// UploadsRoot is the directory of a sandbox in which a session's files are seen.
const UploadsRoot = "/mnt/session/uploads"

// Limits of a mount path below UploadsRoot, in bytes: those of Linux.
const (
	maxMountPath = 3_072
	maxMountName = 255
)

// FileMount asks for a file in a session.
type FileMount struct {
	FileID    string
	MountPath string // absolute, below UploadsRoot
}

// FileResource is a file of a session as served.
type FileResource struct {
	ID        string `json:"id"`
	Type      string `json:"type"` // file
	FileID    string `json:"file_id"`
	MountPath string `json:"mount_path"`
	CreatedAt Time   `json:"created_at"`
	UpdatedAt Time   `json:"updated_at"`
}

// NewFileResource makes the resource for a file at a path below UploadsRoot.
func NewFileResource(resourceID, fileID, mountPath string, at Time) FileResource {
	return FileResource{ID: resourceID, Type: "file", FileID: fileID, MountPath: mountPath, CreatedAt: at, UpdatedAt: at}
}

// DecodeFileMount reads the body of POST /v1/sessions/{id}/resources. The paths are those that the session has already;
// the file must not overlap them, nor be one more than the 500 that a session may have.
func DecodeFileMount(body []byte, taken []string) (FileMount, error) {
	root, err := readBody(body)
	if err != nil {
		return FileMount{}, err
	}
	mount := readFileMount(root)
	if root.ok() && len(taken) >= maxFiles {
		root.refuseAs(problem.Invalidf("Invalid file resource: at most %d files are allowed in a session", maxFiles))
	}
	mount = newMounts(taken).resolve(root.verdict, mount)
	return mount, root.err()
}

func readFileMounts(n node) []FileMount { return list(n, maxFiles, readFileMount) }

func readFileMount(n node) FileMount {
	switch kind := n.variant("file", "github_repository", "memory_store"); kind {
	case "github_repository", "memory_store":
		n.refuse(join(n.path, "type"), "%s is %s", quote(kind), unsupported)
		return FileMount{}
	}
	o := n.object("type", "file_id", "mount_path", "id", "created_at", "updated_at")
	return FileMount{
		FileID:    o.field("file_id").text(),
		MountPath: optional(o.field("mount_path"), node.text).Or(""),
	}
}

// resolveMounts fills in the paths of the files of a session and refuses files that are in each other's way.
func resolveMounts(v *verdict, mounts []FileMount) []FileMount {
	m := newMounts(nil)
	resolved := make([]FileMount, 0, len(mounts))
	for _, mount := range mounts {
		if !v.ok() {
			break
		}
		resolved = append(resolved, m.resolve(v, mount))
	}
	return resolved
}

// mounts knows the paths below UploadsRoot that are files, and those that are directories because a file is below them.
type mounts struct{ files, directories map[string]bool }

func newMounts(taken []string) mounts {
	m := mounts{make(map[string]bool), make(map[string]bool)}
	for _, p := range taken {
		m.add(strings.TrimPrefix(p, UploadsRoot))
	}
	return m
}

func (m mounts) add(rooted string) {
	m.files[rooted] = true
	for dir := path.Dir(rooted); dir != "/" && dir != "."; dir = path.Dir(dir) {
		m.directories[dir] = true
	}
}

// overlaps reports whether a path is a file, is above one or is below one.
func (m mounts) overlaps(rooted string) bool {
	if m.files[rooted] || m.directories[rooted] {
		return true
	}
	for dir := path.Dir(rooted); dir != "/" && dir != "."; dir = path.Dir(dir) {
		if m.files[dir] {
			return true
		}
	}
	return false
}

func (m mounts) resolve(v *verdict, mount FileMount) FileMount {
	v.checkID(id.File, mount.FileID, "Invalid file ID.")
	wanted := mount.MountPath
	if wanted == "" {
		wanted = mount.FileID
	}
	rooted, p := rootMount(wanted)
	if p != nil {
		v.refuseAs(p)
		return mount
	}
	if m.overlaps(rooted) {
		v.refuseAs(problem.Invalidf("Invalid file resource: `mount_path` overlaps another resource: %s", shortPath("/uploads"+rooted)))
	}
	m.add(rooted)
	mount.MountPath = UploadsRoot + rooted
	return mount
}

// rootMount returns the place of a mount path below UploadsRoot, beginning with a slash. A path that is below it already,
// as in our own answers, stays; any other is taken as relative to it. No path leads out.
func rootMount(wanted string) (string, *problem.Error) {
	if strings.ContainsFunc(wanted, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", problem.Invalidf("Invalid file resource: mount path %s contains control characters", quote(wanted))
	}
	if len(wanted) > maxMountPath {
		return "", problem.Invalidf("Invalid file resource: mount path %s is longer than %d bytes", quote(wanted), maxMountPath)
	}
	below := wanted
	if rest, ok := strings.CutPrefix(wanted, UploadsRoot); ok && (rest == "" || rest[0] == '/') {
		below = rest
	}
	relative := path.Clean(strings.TrimLeft(below, "/"))
	switch {
	case relative == ".." || strings.HasPrefix(relative, "../"):
		return "", problem.Invalidf("Invalid file resource: mount path %s escapes /uploads/", quote(wanted))
	case relative == ".":
		return "", problem.Invalidf("Invalid file resource: mount path %s names no file", quote(wanted))
	}
	for name := range strings.SplitSeq(relative, "/") {
		if len(name) > maxMountName {
			return "", problem.Invalidf("Invalid file resource: mount path %s has a name longer than %d bytes",
				quote(wanted), maxMountName)
		}
	}
	return "/" + relative, nil
}

// shortPath cuts a long path for an error.
func shortPath(p string) string { return strings.Trim(quote(p), `"`) }
