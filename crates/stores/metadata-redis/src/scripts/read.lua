-- Names of instances; answers what a transition of each needs to know.
local answers = { text(now), redis.call('HGET', state, 'floor') }
local leases = {}
for index = 4, #ARGV do
  local name = ARGV[index]
  local worker = string.match(name, '@(.*)$')
  if leases[worker] == nil then
    leases[worker] = redis.call('HGET', prefix .. 'worker:' .. worker, 'lease')
  end
  local record = redis.call('HMGET', prefix .. 'instance:' .. name,
    'application', 'state', 'version', 'since', 'load', 'reason')
  record[7] = leases[worker]
  answers[#answers + 1] = record
end
return answers
