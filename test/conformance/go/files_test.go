package goclient

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

func (w *world) upload(name, content string) *anthropic.BetaFileMetadata {
	w.Helper()
	return must[*anthropic.BetaFileMetadata](w)(w.client.Beta.Files.Upload(w.ctx, anthropic.BetaFileUploadParams{
		File: anthropic.File(strings.NewReader(content), name, "text/plain"),
	}))
}

func (w *world) files(scope string) map[string]anthropic.BetaFileMetadata {
	w.Helper()
	found := map[string]anthropic.BetaFileMetadata{}
	pager := w.client.Beta.Files.ListAutoPaging(w.ctx, anthropic.BetaFileListParams{
		ScopeID: anthropic.String(scope), Limit: anthropic.Int(1), Betas: []anthropic.AnthropicBeta{"managed-agents-2026-04-01"},
	})
	for file := range pager.All() {
		found[file.Filename] = file
	}
	if pager.Err() != nil {
		w.Fatal(pager.Err())
	}
	return found
}

func TestFiles(t *testing.T) {
	w := begin(t)
	made := w.upload("a.txt", "content")
	same(w, "name", made.Filename, "a.txt")
	same(w, "size", made.SizeBytes, 7)
	same(w, "type", made.MimeType, "text/plain")
	same(w, "downloadable", made.Downloadable, false)
	got := must[*anthropic.BetaFileMetadata](w)(w.client.Beta.Files.GetMetadata(w.ctx, made.ID, anthropic.BetaFileGetMetadataParams{}))
	same(w, "retrieved", got.RawJSON(), made.RawJSON())

	other := w.upload("b.txt", "more")
	page, err := w.client.Beta.Files.List(w.ctx, anthropic.BetaFileListParams{IDs: []string{made.ID, other.ID, "file_011CNha8iCJcU1wXNR6q4V8w"}})
	if err != nil {
		t.Fatal(err)
	}
	same(w, "files by id", len(page.Data), 2)

	_, err = w.client.Beta.Files.Download(w.ctx, made.ID, anthropic.BetaFileDownloadParams{})
	var refusal *anthropic.Error
	if !errors.As(err, &refusal) || refusal.StatusCode != 400 || !strings.Contains(refusal.Message, "is not downloadable") {
		t.Errorf("download of an upload: %v", err)
	}
	deleted := must[*anthropic.BetaDeletedFile](w)(w.client.Beta.Files.Delete(w.ctx, made.ID, anthropic.BetaFileDeleteParams{}))
	same(w, "deleted", deleted.ID, made.ID)
	same(w, "type", string(deleted.Type), "file_deleted")
	_, err = w.client.Beta.Files.GetMetadata(w.ctx, made.ID, anthropic.BetaFileGetMetadataParams{})
	w.refused(err, 404, "not_found_error", "")
}

func TestOutputs(t *testing.T) {
	w := begin(t)
	made := w.session("deliver", toolset)
	w.converse(made.ID, message("go"))
	found := w.files(made.ID)
	same(w, "files", len(found), 2)
	for name, content := range map[string]string{"table.csv": "a,b\n1,2\n", "note.txt": "deep down"} {
		file := found[name]
		same(w, "downloadable", file.Downloadable, true)
		same(w, "scope", file.Scope.ID, made.ID)
		same(w, "size", file.SizeBytes, int64(len(content)))
		response, err := w.client.Beta.Files.Download(w.ctx, file.ID, anthropic.BetaFileDownloadParams{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		same(w, name, string(got), content)
	}
	// What a session made goes with it.
	must[*anthropic.BetaManagedAgentsDeletedSession](w)(w.client.Beta.Sessions.Delete(w.ctx, made.ID, anthropic.BetaSessionDeleteParams{}))
	_, err := w.client.Beta.Files.GetMetadata(w.ctx, found["table.csv"].ID, anthropic.BetaFileGetMetadataParams{})
	w.refused(err, 404, "not_found_error", "")
}

func TestUploadedFileInTheSandbox(t *testing.T) {
	w := begin(t)
	file := w.upload("input.txt", "forty-two")
	made := w.sessionOf(w.agent("readupload", toolset).ID, anthropic.BetaSessionNewParams{
		Resources: []anthropic.BetaSessionNewParamsResourceUnion{
			{OfFile: &anthropic.BetaManagedAgentsFileResourceParams{FileID: file.ID, MountPath: anthropic.String("/data/input.txt")}},
		},
	})
	if answer := said(w.converse(made.ID, message("read"))); !strings.Contains(answer, "The file says: forty-two") {
		t.Errorf("answer %q", answer)
	}
	scoped := w.files(made.ID)
	same(w, "scoped files", len(scoped), 1)
	same(w, "the copy can be downloaded", scoped["input.txt"].Downloadable, false)
}

func TestSessionResources(t *testing.T) {
	w := begin(t)
	made := w.session("greet", toolset)
	file := w.upload("input.txt", "forty-two")
	added, err := w.client.Beta.Sessions.Resources.Add(w.ctx, made.ID, anthropic.BetaSessionResourceAddParams{
		BetaManagedAgentsFileResourceParams: anthropic.BetaManagedAgentsFileResourceParams{FileID: file.ID, Type: "file"},
	})
	if err != nil {
		t.Fatal(err)
	}
	same(w, "mount path", added.MountPath, "/mnt/session/uploads/"+file.ID)
	pager := w.client.Beta.Sessions.Resources.ListAutoPaging(w.ctx, made.ID, anthropic.BetaSessionResourceListParams{})
	n := 0
	for resource := range pager.All() {
		n++
		same(w, "id", resource.ID, added.ID)
	}
	if pager.Err() != nil {
		t.Fatal(pager.Err())
	}
	same(w, "resources", n, 1)
	got, err := w.client.Beta.Sessions.Resources.Get(w.ctx, added.ID, anthropic.BetaSessionResourceGetParams{SessionID: made.ID})
	if err != nil {
		t.Fatal(err)
	}
	same(w, "retrieved", got.AsFile().FileID, added.FileID)
	_, err = w.client.Beta.Sessions.Resources.Add(w.ctx, made.ID, anthropic.BetaSessionResourceAddParams{
		BetaManagedAgentsFileResourceParams: anthropic.BetaManagedAgentsFileResourceParams{FileID: file.ID, Type: "file", MountPath: anthropic.String("/../../etc/passwd")},
	})
	w.refused(err, 400, "invalid_request_error", "")
	deleted, err := w.client.Beta.Sessions.Resources.Delete(w.ctx, added.ID, anthropic.BetaSessionResourceDeleteParams{SessionID: made.ID})
	if err != nil {
		t.Fatal(err)
	}
	same(w, "deleted", deleted.ID, added.ID)
	same(w, "type", string(deleted.Type), "session_resource_deleted")
	_, err = w.client.Beta.Sessions.Resources.Get(w.ctx, added.ID, anthropic.BetaSessionResourceGetParams{SessionID: made.ID})
	w.refused(err, 404, "not_found_error", "")
	same(w, "resources of the session", len(w.retrieve(made.ID).Resources), 0)
}
