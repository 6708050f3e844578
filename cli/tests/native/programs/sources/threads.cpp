// Threads of the C++ library: futures, exceptions that cross threads, condition variables, and destructors of
// objects that belong to threads. Its output does not depend on the order in which threads run.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <iostream>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<int> made, destroyed;
static std::atomic<long> kept_in_all;

// An object of each thread that uses it, with memory that its destructor frees.
struct Kept {
    std::vector<long> numbers;
    Kept() { made++; }
    ~Kept() {
        kept_in_all += std::accumulate(numbers.begin(), numbers.end(), 0L);
        destroyed++;
    }
};
static thread_local Kept kept;

// A queue with room for four, so that both sides wait.
class Queue {
    std::mutex lock;
    std::condition_variable has_room, has_items;
    std::deque<std::optional<long>> items;

public:
    void put(std::optional<long> item) {
        std::unique_lock<std::mutex> guard(lock);
        has_room.wait(guard, [&] { return items.size() < 4; });
        items.push_back(item);
        has_items.notify_one();
    }

    std::optional<long> take() {
        std::unique_lock<std::mutex> guard(lock);
        has_items.wait(guard, [&] { return !items.empty(); });
        auto item = items.front();
        items.pop_front();
        has_room.notify_one();
        return item;
    }
};

static void queue() {
    Queue queue;
    std::atomic<long> sum{0}, count{0};
    std::vector<std::thread> makers, users;
    for (int i = 0; i < 3; i++) {
        makers.emplace_back([&, i] {
            for (long k = 0; k < 400; k++) queue.put(i * 1000 + k);
        });
        users.emplace_back([&] {
            kept.numbers.reserve(100);
            while (auto item = queue.take()) {
                kept.numbers.push_back(*item);
                sum += *item;
                count++;
            }
        });
    }
    for (auto &maker : makers) maker.join();
    for (auto &user : users) (void)user, queue.put(std::nullopt);
    for (auto &user : users) user.join();
    std::cout << "queue " << count << " " << sum << " kept " << kept_in_all << "\n";
}

static long checksum(unsigned seed) {
    std::vector<unsigned> numbers(50000);
    for (auto &number : numbers) number = seed = seed * 1664525u + 1013904223u;
    unsigned sum = 0;
    for (auto number : numbers) sum = sum * 31 + number;
    return sum;
}

static void futures() {
    std::vector<std::future<long>> results;
    for (unsigned i = 0; i < 12; i++) results.push_back(std::async(std::launch::async, checksum, i));
    for (auto &result : results) std::cout << "future " << result.get() << "\n";

    std::promise<std::string> promise;
    std::shared_future<std::string> said = promise.get_future().share();
    std::vector<std::future<size_t>> heard;
    for (int i = 0; i < 3; i++)
        heard.push_back(std::async(std::launch::async, [said, i] { return said.get().size() + i; }));
    promise.set_value(std::string(100000, 'x'));
    for (auto &one : heard) std::cout << "heard " << one.get() << "\n";

    std::packaged_task<long(unsigned)> task(checksum);
    auto result = task.get_future();
    std::thread(std::move(task), 99).join();
    std::cout << "task " << result.get() << "\n";
}

// Throws from some frames below, so that there is something to unwind.
static void fail(int number, int depth) {
    std::string local(100, 'a');
    if (depth > 0) {
        fail(number, depth - 1);
        local += "b";
        return;
    }
    switch (number % 3) {
    case 0: throw std::runtime_error("error " + std::to_string(number));
    case 1: throw number;
    default: throw std::out_of_range(std::string(2000, 'o'));
    }
}

static std::string name(std::exception_ptr caught) {
    try {
        std::rethrow_exception(caught);
    } catch (const std::out_of_range &error) {
        return "out of range, " + std::to_string(std::string(error.what()).size());
    } catch (const std::exception &error) {
        return error.what();
    } catch (int number) {
        return "number " + std::to_string(number);
    }
}

static void exceptions() {
    std::vector<std::exception_ptr> caught(9);
    std::vector<std::thread> threads;
    for (int i = 0; i < 9; i++)
        threads.emplace_back([&caught, i] {
            try {
                fail(i, 20);
            } catch (...) {
                caught[i] = std::current_exception();
            }
        });
    for (auto &thread : threads) thread.join();
    for (auto &one : caught) std::cout << "caught " << name(one) << "\n";

    auto thrown = std::async(std::launch::async, [] { fail(30, 50); });
    try {
        thrown.get();
    } catch (const std::exception &error) {
        std::cout << "thrown " << error.what() << "\n";
    }
    std::future<int> broken;
    {
        std::promise<int> promise;
        broken = promise.get_future();
    }
    try {
        broken.get();
    } catch (const std::future_error &error) {
        std::cout << "broken " << (error.code() == std::future_errc::broken_promise) << "\n";
    }
}

static void once() {
    std::once_flag flag;
    std::atomic<int> calls{0}, failures{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; i++)
        threads.emplace_back([&] {
            try {
                // The first call fails, so another thread makes the next one.
                std::call_once(flag, [&] {
                    if (calls++ == 0) throw std::runtime_error("first");
                });
            } catch (const std::runtime_error &) {
                failures++;
            }
        });
    for (auto &thread : threads) thread.join();
    std::cout << "once " << calls << " failed " << failures << "\n";
}

int main() {
    queue();
    std::cout << "threads' objects " << made << " " << destroyed << "\n";
    futures();
    exceptions();
    once();
}
