// The way of a model through a service with the SDK that openapi-generator's typescript-fetch generates: registered,
// asked, run over a file. Arguments: the service's address, the folder of the example.

import {
  ApplicationsApi,
  ArtefactsApi,
  Configuration,
  Job,
  JobsApi,
  ModelsApi,
  OpenInferenceProtocolApi,
  ProblemFromJSON,
  QueriesApi,
  ResponseError,
  VariantsApi,
} from "./generated";

declare const process: { argv: string[]; exit(code: number): never };
declare function require(name: string): any;
const fs = require("fs");

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) {
    throw new Error(JSON.stringify(what));
  }
}

async function ended(jobs: JobsApi, name: string): Promise<Job> {
  const deadline = Date.now() + 300_000;
  while (Date.now() < deadline) {
    const job = await jobs.jobsGet({ job: name, waitMs: 2000 });
    if (!["queued", "running", "paused"].includes(job.state)) {
      return job;
    }
  }
  throw new Error(`${name} does not end`);
}

async function main(address: string, folder: string): Promise<void> {
  const configuration = new Configuration({ basePath: address });
  const applications = new ApplicationsApi(configuration);
  const artefacts = new ArtefactsApi(configuration);
  const jobs = new JobsApi(configuration);
  const models = new ModelsApi(configuration);
  const queries = new QueriesApi(configuration);
  const protocol = new OpenInferenceProtocolApi(configuration);

  check((await protocol.v2Ready()).ready, "not ready");
  const created = await applications.applicationsCreate({
    newApplication: { name: "digits", metric: "top1" },
  });
  check(created.name === "digits", created);
  const file = (name: string) => new Blob([fs.readFileSync(`${folder}/${name}`)]);
  const accepted = await models.modelsCreate({
    name: "mlp",
    application: "digits",
    model: file("mlp.onnx"),
    validation: file("validation.npz"),
    classes: [..."0123456789"].join("\n"),
  });
  const registered = await ended(jobs, accepted.job);
  check(registered.state === "succeeded", registered);
  const model = await models.modelsGet({ model: "mlp" });
  check(model.status === "ready" && model.classes?.[9] === "9", model);
  const { variants } = await new VariantsApi(configuration).variantsOfModel({ model: "mlp" });
  check(variants.length === model.variants, variants.length);

  const images: number[][] = JSON.parse(fs.readFileSync(`${folder}/images.json`, "utf8"));
  const labels: number[] = JSON.parse(fs.readFileSync(`${folder}/labels.json`, "utf8"));
  const pixels = (image: number[]) => ({
    name: "pixels",
    shape: [1, image.length],
    datatype: "FP32",
    data: image,
  });
  let right = 0;
  for (const [index, image] of images.entries()) {
    const answer = await queries.queriesCreate({
      query: {
        application: "digits",
        targets: { latencyMs: 5000, minAccuracy: 0.9 },
        inputs: [pixels(image)],
        classification: 1,
      },
    });
    check(answer.targetsMet, answer);
    right += answer.classification?.[0][0].name === String(labels[index]) ? 1 : 0;
  }
  check(right >= 0.9 * images.length, right);

  const inferred = await protocol.v2Infer({
    model: "digits",
    inferRequest: { id: "1", inputs: [pixels(images[0])] },
  });
  check(inferred.id === "1" && inferred.outputs[0].shape[1] === 10, inferred);

  try {
    await queries.queriesCreate({
      query: { application: "digits", targets: { minAccuracy: 1 }, inputs: [pixels(images[0])] },
    });
    check(false, "the impossible is answered");
  } catch (error) {
    check(error instanceof ResponseError, String(error));
    const problem = ProblemFromJSON(await error.response.json());
    check(error.response.status === 422 && problem.code === "target_infeasible", problem);
  }

  const lines = images.map((image) => JSON.stringify({ inputs: { pixels: image } }) + "\n");
  await artefacts.artefactsPut({ path: "in.jsonl", body: new Blob(lines) });
  const job = await jobs.jobsCreate({
    newJob: { application: "digits", input: "in.jsonl", output: "out.jsonl" },
  });
  const done = await ended(jobs, job.id);
  check(done.state === "succeeded", done);
  const output = await (await artefacts.artefactsGet({ path: "out.jsonl" })).text();
  check(output.trim().split("\n").length === images.length, output);
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error);
  process.exit(1);
});
