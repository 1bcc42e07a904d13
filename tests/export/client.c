/* A client of an export with no Python in it: TensorFlow's C API, as a server written in C or C++ uses it.
 *
 *   client SAVED_MODEL OP_LIBRARY [OP_LIBRARY ...] < lines        one batch: every line of standard input
 *
 * Prints a line for each line: translation, TAB, score, TAB, truncated (0 or 1). The op libraries are those of
 * tensorflow-text; the names of the tensors are read from the SignatureDef; XLA is disabled as TF Serving does.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

/* tensorflow::DisableXlaCompilation(), the call that a stock TF Serving makes; C++ only, hence the mangled name. */
extern void _ZN10tensorflow21DisableXlaCompilationEv(void);

typedef struct {
  const uint8_t* data;
  size_t size;
} Bytes;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

static uint64_t read_varint(Bytes* message) {
  uint64_t value = 0;
  for (int shift = 0; message->size > 0 && shift < 64; shift += 7) {
    uint8_t byte = *message->data++;
    message->size--;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

/* Takes the next length-delimited field `number` off a serialized protocol buffer; returns 0 where there is no more. */
static int next_field(Bytes* message, uint32_t number, Bytes* field) {
  while (message->size > 0) {
    uint64_t tag = read_varint(message);
    size_t length;
    switch (tag & 7) {
      case 0: read_varint(message); continue;
      case 1: length = 8; break;
      case 2: length = (size_t)read_varint(message); break;
      case 5: length = 4; break;
      default: fail("MetaGraphDef", "not a protocol buffer");
    }
    if (length > message->size) fail("MetaGraphDef", "cut short");
    *field = (Bytes){message->data, length};
    message->data += length;
    message->size -= length;
    if ((tag & 7) == 2 && tag >> 3 == number) return 1;
  }
  return 0;
}

/* Looks `key` up in the map field `number`: entries of key (field 1) and value (field 2). */
static Bytes look_up(Bytes message, uint32_t number, const char* key) {
  Bytes entry;
  while (next_field(&message, number, &entry)) {
    Bytes rest = entry, name, value;
    if (next_field(&rest, 1, &name) && name.size == strlen(key) && !memcmp(name.data, key, name.size) &&
        next_field(&entry, 2, &value)) {
      return value;
    }
  }
  fail("not in the SignatureDef", key);
  return message;
}

/* Finds the tensor that the TensorInfo `key` of a signature's inputs (1) or outputs (2) names ("operation:index"). */
static TF_Output tensor_of(TF_Graph* graph, Bytes signature, uint32_t inputs_or_outputs, const char* key) {
  Bytes info = look_up(signature, inputs_or_outputs, key), name;
  if (!next_field(&info, 1, &name)) fail("no tensor name", key);
  char text[1024];
  snprintf(text, sizeof text, "%.*s", (int)name.size, (const char*)name.data);
  char* colon = strrchr(text, ':');
  if (colon == NULL) fail("no output index", text);
  *colon = '\0';
  TF_Output output = {TF_GraphOperationByName(graph, text), atoi(colon + 1)};
  if (output.oper == NULL) fail("not in the graph", text);
  return output;
}

/* Reads all of standard input into a string tensor of shape [lines]. */
static TF_Tensor* read_lines(void) {
  char** lines = NULL;
  size_t* sizes = NULL;
  int64_t count = 0;
  char* line = NULL;
  size_t capacity = 0;
  ssize_t size;
  while ((size = getline(&line, &capacity, stdin)) >= 0) {
    if (size > 0 && line[size - 1] == '\n') size--;
    lines = realloc(lines, (count + 1) * sizeof *lines);
    sizes = realloc(sizes, (count + 1) * sizeof *sizes);
    lines[count] = line;
    sizes[count++] = size;
    line = NULL;
    capacity = 0;
  }
  TF_Tensor* tensor = TF_AllocateTensor(TF_STRING, &count, 1, count * sizeof(TF_TString));
  TF_TString* strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < count; i++) {
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], lines[i], sizes[i]);
  }
  return tensor;
}

int main(int argc, char** argv) {
  if (argc < 3) fail("usage", "client SAVED_MODEL OP_LIBRARY [OP_LIBRARY ...]");
  TF_Status* status = TF_NewStatus();
  for (int i = 2; i < argc; i++) {
    TF_LoadLibrary(argv[i], status);
    check(status, argv[i]);
  }
  _ZN10tensorflow21DisableXlaCompilationEv();

  const char* tags[] = {"serve"};
  TF_Graph* graph = TF_NewGraph();
  TF_Buffer* meta_graph = TF_NewBuffer();
  TF_Session* session =
      TF_LoadSessionFromSavedModel(TF_NewSessionOptions(), NULL, argv[1], tags, 1, graph, meta_graph, status);
  check(status, argv[1]);

  Bytes meta_graph_def = {meta_graph->data, meta_graph->length};
  Bytes signature = look_up(meta_graph_def, 5, "serving_default"); /* MetaGraphDef.signature_def is field 5 */
  TF_Output text = tensor_of(graph, signature, 1, "text");
  TF_Output outputs[] = {tensor_of(graph, signature, 2, "translation"), tensor_of(graph, signature, 2, "score"),
                         tensor_of(graph, signature, 2, "truncated")};
  TF_Tensor* lines = read_lines();
  TF_Tensor* results[3];
  TF_SessionRun(session, NULL, &text, &lines, 1, outputs, results, 3, NULL, 0, NULL, status);
  check(status, "serving_default");

  const TF_TString* translations = TF_TensorData(results[0]);
  const float* scores = TF_TensorData(results[1]);
  const unsigned char* truncated = TF_TensorData(results[2]);
  for (int64_t i = 0; i < TF_Dim(results[0], 0); i++) {
    fwrite(TF_StringGetDataPointer(&translations[i]), 1, TF_StringGetSize(&translations[i]), stdout);
    printf("\t%.6f\t%d\n", scores[i], truncated[i]);
  }
  return 0;
}
