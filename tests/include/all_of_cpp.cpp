/* all_of_cpp.cpp - a rank that uses all of cddp.hpp, and prints what is wrong. */
#include "include/all_of_cpp.hpp"

#include <array>
#if __cplusplus >= 202002L
#include <span>
#endif

/* Classes are of their version's namespace, so two versions can be in one process. */
#define VERSIONED(major, minor, type) cddp::v##major##_##minor::type
#define OF_VERSION(major, minor, type) std::is_same_v<cddp::type, VERSIONED(major, minor, type)>
#define OF_THIS_VERSION(type) OF_VERSION(CDDP_VERSION_MAJOR, CDDP_VERSION_MINOR, type)
static_assert(OF_THIS_VERSION(group) && OF_THIS_VERSION(error) && OF_THIS_VERSION(messages));
static_assert(OF_THIS_VERSION(ddp) && OF_THIS_VERSION(store) && OF_THIS_VERSION(loader));
static_assert(OF_THIS_VERSION(sampler) && OF_THIS_VERSION(safetensors));
static_assert(OF_THIS_VERSION(recovery));
static_assert(only_moves<cddp::group> && only_moves<cddp::ddp> && only_moves<cddp::store>);
static_assert(only_moves<cddp::work> && only_moves<cddp::sampler> && only_moves<cddp::safetensors>);
static_assert(only_moves<cddp::memory<float>>);
static_assert(cddp::type_of<const float>() == CDDP_F32 && cddp::type_of<double>() == CDDP_F64);
static_assert(cddp::type_of<cddp::f16>() == CDDP_F16 && cddp::type_of<cddp::bf16>() == CDDP_BF16);
static_assert(cddp::type_of<int>() == CDDP_I32 && cddp::type_of<long long>() == CDDP_I64);
static_assert(cddp::type_of<long>() == CDDP_I64 && cddp::type_of<unsigned char>() == CDDP_U8);
static_assert(cddp::type_of<signed char>() == CDDP_I8 && cddp::type_of<bool>() == CDDP_BOOL);

cddp_status status_of(const std::function<void()> &call)
{
    try {
        call();
    } catch (const cddp::error &error) {
        CHECK(std::string(error.what()) != "");
        return error.status();
    }
    return CDDP_OK;
}

static void reductions(cddp::group &group)
{
    const int rank = group.rank();
    const int size = group.world_size();
    const int sum = size * (size - 1) / 2;
    double number = rank;
    std::vector<float> numbers = {1.0f * static_cast<float>(rank), 1.0f};
    std::array<std::int64_t, 2> most = {rank, -rank};
    std::array<float, 2> mean = {};
    cddp::work work;

    group.all_reduce(number);
    CHECK(number == sum);
    group.all_reduce(most, CDDP_OP_MAX, &work);
    work.wait();
    CHECK(work.test() && most[0] == size - 1 && most[1] == 0);
    group.all_reduce(numbers, mean, CDDP_OP_MEAN);
    CHECK(mean[0] == static_cast<float>(sum) / static_cast<float>(size) && mean[1] == 1.0f);
    group.all_reduce_weighted(numbers, rank == 0 ? 2.0 : 0.0);
    CHECK(numbers[0] == 0.0f && numbers[1] == 1.0f);
    number = rank;
    double at_last = -1;
    group.reduce(number, at_last, CDDP_OP_SUM, size - 1);
    CHECK(at_last == (rank == size - 1 ? sum : -1));
    group.broadcast(at_last, size - 1);
    CHECK(at_last == sum);
    auto shared = group.alloc<float>(5);
    for (float &one : cddp::span<float>(shared)) {
        CHECK(one == 0.0f);
        one = 1.0f;
    }
    group.all_reduce(shared);
    CHECK(shared.data()[4] == static_cast<float>(size));
    auto moved = std::move(shared);
    CHECK(shared.data() == nullptr && moved.size() == 5);
    CHECK(group.alloc<char>(3, CDDP_ALLOC_HOST).size() == 3);
    group.barrier();
#if __cplusplus >= 202002L
    std::span<double> one(&number, 1);
    group.all_reduce(one);
    CHECK(number == sum);
#endif
}

static void exchanges(cddp::group &group)
{
    const int rank = group.rank();
    const int size = group.world_size();
    const auto count = static_cast<std::size_t>(size);
    std::vector<int> all(count);
    std::vector<int> back(count);
    int own = 10 + rank;
    int got = 0;

    group.all_gather(own, all);
    CHECK(all.front() == 10 && all.back() == 9 + size);
    group.all_to_all(all, back);
    CHECK(back.front() == own && back.back() == own);
    group.reduce_scatter(all, got, CDDP_OP_SUM);
    CHECK(got == size * own);
    std::vector<double> halves(count, 0.5);
    double half = 0;
    group.reduce_scatter_weighted(halves, half, 1.0);
    CHECK(half == 0.5);
    std::vector<int> at_root(rank == 0 ? count : 0);
    group.gather(own, at_root, 0);
    CHECK(rank != 0 || at_root == all);
    group.scatter(at_root, got, 0);
    CHECK(got == own);
    if (size > 1) {
        cddp::work sent;
        int neighbour = 0;

        group.send(own, (rank + 1) % size, &sent);
        group.recv(neighbour, (rank + size - 1) % size);
        sent.wait();
        CHECK(neighbour == 10 + (rank + size - 1) % size);
    }
    auto part = group.split(rank == 0 ? -1 : 1, 0);
    CHECK(part.has_value() == (rank != 0));
    CHECK(rank == 0 || (part->rank() == rank - 1 && part->world_size() == size - 1));
}

static void refusals(cddp::group &group)
{
    std::vector<float> two(2);
    std::vector<float> three(3);
    cddp::params model;

    CHECK(status_of([&] { group.all_reduce(two, three, CDDP_OP_SUM); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { group.broadcast(two, 99); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { model.param("w", {3}, two); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { model.param("w", {2}, two, three); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { model.param("w", cddp::shape(9, 1), two); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { model.param("w", {INT64_MAX, 3}, two); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { cddp::ddp(group, model); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([] { cddp::sampler(CDDP_ORDER_RANDOM, 0, 1); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([] { cddp::sampler(CDDP_ORDER_RANDOM, 4, 1)[4]; }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([] { cddp::safetensors("nowhere/model.safetensors"); }) != CDDP_OK);
    CHECK(status_of([] { cddp::work().wait(); }) == CDDP_ERR_ARGUMENT);
}

static void gradients(cddp::group &group, const std::string &folder)
{
    const auto size = static_cast<float>(group.world_size());
    std::vector<float> weight(6, static_cast<float>(group.rank()));
    std::vector<float> weight_grad(6);
    std::vector<double> bias(2);
    std::vector<float> table(4, 1.0f);
    std::int64_t calls = 7 + group.rank();
    cddp::params model;

    model.param("w", {2, 3}, weight, weight_grad).param("b", {2}, bias);
    model.frozen("table", {4}, table).buffer("calls", {}, calls);
    cddp::ddp ddp(group, model);
    cddp_step step = cddp::ddp::step(1, 1);
    CHECK(weight[5] == 0.0f && calls == 7);
    step.samples = group.rank() == 0 ? 1 : 0; /* only rank 0 has some */
    ddp.begin(step);
    weight_grad.assign(6, 1.0f + static_cast<float>(group.rank()));
    ddp.grad<double>(1)[1] = 3.0 + group.rank();
    ddp.grad_ready(1);
    ddp.grad_ready(0);
    ddp.wait();
    CHECK(weight_grad[5] == 1.0f && ddp.grad<double>(1)[1] == 3.0);
    step.kind = CDDP_STEP_BY_RANKS;
    step.micro_batches = 2 * static_cast<std::uint64_t>(size);
    step.micro_batch = 2 * static_cast<std::uint64_t>(group.rank());
    ddp.begin(step);
    ddp.grad_ready(0);
    ddp.grad_ready(1);
    ddp.wait();
    step.micro_batch++;
    ddp.begin(step);
    weight_grad.assign(6, static_cast<float>(group.rank()));
    ddp.grad_ready(0);
    ddp.grad_ready(1);
    ddp.wait();
    CHECK(weight_grad[0] == size * (size - 1) / 2 / size);
    CHECK(ddp.stats().steps == 2 && ddp.stats().bytes >= 6 * sizeof(float) + 2 * sizeof(double));
    CHECK(ddp.bucket_stats(0).params >= 1);
    CHECK(status_of([&] { ddp.grad<float>(1); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { ddp.grad<float>(2); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { ddp.grad<float>(9); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { ddp.grad_ready(9); }) == CDDP_ERR_ARGUMENT);
    weight_grad.assign(6, static_cast<float>(group.rank()));
    ddp.begin(cddp::ddp::step(3, 1));
    ddp.grads_ready(0, 2);
    ddp.progress();
    ddp.wait();
    CHECK(weight_grad[0] == size * (size - 1) / 2 / size && ddp.stats().steps == 3);
    weight.assign(6, static_cast<float>(group.rank()));
    calls = group.rank();
    ddp.broadcast(group.world_size() - 1, CDDP_BROADCAST_PARAMS);
    CHECK(weight[5] == size - 1 && calls == group.rank());
    ddp.broadcast(group.world_size() - 1, CDDP_BROADCAST_BUFFERS);
    CHECK(calls == group.world_size() - 1);
    CHECK(ddp.param_count() == 3 && ddp.param_name(2) == "table");
    CHECK(status_of([&] { ddp.param_name(3); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { ddp.load(folder + "/none"); }) == CDDP_ERR_NOT_FOUND);
    ddp.save(folder + "/whole");
    weight[5] = 42;
    ddp.load(folder + "/whole");
    CHECK(weight[5] == size - 1);
    CHECK(ddp.follow()); /* all are through */
    CHECK(status_of([&] { ddp.grads_ready(2, 9); }) == CDDP_ERR_ARGUMENT);
}

static void shards(cddp::group &group)
{
    std::vector<float> weight(100, 1.0f);
    cddp_ddp_options how = cddp::ddp::options();

    how.shard = true;
    cddp::ddp ddp(group, cddp::params().param("w", {10, 10}, weight), how);
    for (float &one : ddp.grad<float>(0)) {
        one = 2.0f;
    }
    ddp.begin(1, 1);
    ddp.grad_ready(0);
    ddp.wait();
    for (const cddp_span &span : ddp.spans(group.rank())) {
        for (std::size_t i = span.first; i < span.first + span.count; i++) {
            ddp.param<float>(0)[i] -= ddp.grad<float>(0)[i];
        }
    }
    ddp.params_start();
    ddp.param_wait(0);
    ddp.params_wait();
    CHECK(weight[0] == 1.0f);
    ddp.unshard();
    CHECK(weight[0] == -1.0f && weight[99] == -1.0f);
    for (float one : ddp.param<float>(0)) {
        CHECK(one == -1.0f);
    }
}

/* In the folder that is this rank's own. */
static void files(const std::string &folder)
{
    std::vector<float> weight = {1, 2, 3, 4, 5, 6};
    std::vector<float> read(6);
    const std::vector<std::int64_t> constant = {7};
    cddp::tensors model;
    cddp::tensors into;

    model.add("w", {2, 3}, weight).add("n", {1}, constant);
    cddp::safetensors::write(folder + "/a.safetensors", model, {{"who", "me"}});
    {
        cddp::safetensors file(folder + "/a.safetensors");

        CHECK(file.size() == 2 && file.find("w")->shape[1] == 3 && file.find("x") == nullptr);
        CHECK(file.metadata("who") == "me" && !file.metadata("when").has_value());
        CHECK(file[0].dims == 2);
        CHECK(status_of([&] { file[2]; }) == CDDP_ERR_NOT_FOUND);
    }
    CHECK(status_of([&] { cddp::safetensors::load(folder + "/a.safetensors", model); }) ==
          CDDP_ERR_ARGUMENT); /* n is const */
    into.add("w", {2, 3}, read);
    CHECK(status_of([&] { cddp::safetensors::load(folder + "/a.safetensors", into); }) ==
          CDDP_ERR_FORMAT); /* n is missing */
    CHECK(!cddp::snapshot::find(folder + "/none").has_value());
    cddp::snapshot::write(folder, 12, cddp::tensors().add("w", {6}, weight),
                          cddp::tensors().add("m", {6}, weight), "{\"epoch\":3}", 2);
    auto found = cddp::snapshot::find(folder);
    CHECK(found.has_value() && found->skipped.empty());
    CHECK(cddp::snapshot::recover(folder)->path == found->path);
    CHECK(cddp::snapshot::read_state(found->path).second == 12);
    CHECK(cddp::snapshot::read_state(found->path).first == "{\"epoch\":3}");
    std::vector<float> momentum(6);
    cddp::snapshot::load(found->path, cddp::tensors().add("w", {6}, read),
                         cddp::tensors().add("m", {6}, momentum));
    CHECK(read == weight && momentum == weight);
    cddp::snapshot::saving later = cddp::snapshot::start(
        folder + "/later", 13, cddp::tensors().add("w", {6}, weight), cddp::tensors(), "{}");
    weight[0] = 9;
    later.wait();
    CHECK(later.test());
    cddp::snapshot::load(cddp::snapshot::find(folder + "/later")->path,
                         cddp::tensors().add("w", {6}, read), cddp::tensors());
    CHECK(read[0] == 1);
}

static void keys(const std::string &folder)
{
    cddp_store_options how = cddp::store::options();
    const std::string url = "file://" + folder + "/keys";

    how.url = url.c_str();
    how.token = "none";
    cddp::store store(how);
    store.set("a/x", std::string_view("1\0002", 3));
    CHECK(store.get("a/x").size() == 3 && !store.try_get("b").has_value());
    CHECK(store.try_get("a/x")->size() == 3);
    CHECK(store.add("a/n", 5) == 5 && store.add("a/n", -7) == -2);
    CHECK((store.compare_set("c", "", "new") == std::pair<bool, std::string>(true, "new")));
    CHECK((store.compare_set("c", "old", "no") == std::pair<bool, std::string>(false, "new")));
    store.wait({"a/x", "c"});
    CHECK(status_of([&] { store.wait({"never"}, 1); }) == CDDP_ERR_TIMEOUT);
    CHECK((store.list("a/") == std::vector<std::string>{"a/n", "a/x"}));
    CHECK(store.list("z").empty());
    CHECK(store.erase("c") && !store.erase("c"));
}

static void orders()
{
    cddp::sampler sampler(CDDP_ORDER_SEQUENTIAL, 10, 1);

    sampler.set_epoch(2);
    CHECK(sampler.count() == 10 && sampler[9] == 9);
    CHECK((sampler.torch_shard(1, 3, false) == std::vector<std::uint64_t>{1, 4, 7, 0}));
}

/* Owners that go in the wrong order, and one that is given on. */
static void ends(cddp::group group)
{
    std::vector<float> weight(3);
    auto ddp = std::make_unique<cddp::ddp>(group, cddp::params().param("w", {3}, weight));
    auto block = std::make_unique<cddp::memory<float>>(group.alloc<float>(3));

    CHECK(group.backend() != "" && group.timeout_ms() > 0 && group.device() == -1);
    CHECK(group.local_rank() == group.rank() && group.local_world_size() == group.world_size());
    CHECK(group.generation() == group.info().generation);
    CHECK(group.translate(group, group.rank()) == group.rank());
    group.set_timeout(CDDP_TIMEOUT_DEFAULT);
    CHECK(group.stream() == nullptr);
    CHECK(status_of([&] { group.set_stream(nullptr); }) == CDDP_ERR_ARGUMENT);
    group.barrier();
    std::optional<cddp::group> last(std::move(group));
    last.reset();
    ddp.reset();
    block.reset();
}

int main()
{
    const char *rank = std::getenv("CDDP_RANK");
    const char *where = std::getenv("TEST_FOLDER");
    const std::string folder = std::string(where == nullptr ? "." : where) + "/rank-" +
                               (rank == nullptr ? "0" : rank) + "-" + std::to_string(__cplusplus);

    first_of_all();
    try {
        cddp::group group;

        reductions(group);
        exchanges(group);
        refusals(group);
        CHECK(std::system(("mkdir -p '" + folder + "'").c_str()) == 0);
        gradients(group, folder);
        shards(group);
        files(folder);
        keys(folder);
        orders();
        bytes_and_messages(group);
        keys_of_the_group(group);
        batches(group);
        states(group);
        stop(group);
        ends(std::move(group));
        cddp::set_log_sink(nullptr);
    } catch (const cddp::error &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::puts("all of it");
    return 0;
}
